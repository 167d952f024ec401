package io.newsfabric.publish;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import java.util.Optional;
import org.junit.jupiter.api.Test;

class RefusalTest {
  private static Optional<String> reason(String words) {
    var properties = new AMQP.BasicProperties.Builder().appId("cms").expiration("-1").build();
    return Refusal.reason(words, "news.x", new byte[200_000], properties);
  }

  @Test
  void theWordsTellWhichMessageItWas() {
    assertEquals(Optional.of("too_large"),
        reason("PRECONDITION_FAILED - message size 200000 is larger than configured max size 131072"));
    assertEquals(Optional.empty(),
        reason("PRECONDITION_FAILED - message size 140000 is larger than configured max size 131072"));
    assertEquals(Optional.of("bad_property"),
        reason("PRECONDITION_FAILED - invalid expiration '-1': {value_negative,-1}"));
    assertEquals(Optional.empty(),
        reason("PRECONDITION_FAILED - invalid expiration '-2': {value_negative,-2}"));
    assertEquals(Optional.of("publisher_not_allowed"),
        reason("PRECONDITION_FAILED - user_id property set to 'cms' but authenticated user was 'guest'"));
    assertEquals(Optional.of("publisher_not_allowed"),
        reason("ACCESS_REFUSED - write access to topic 'news.x' in exchange 'publish' in vhost '/' refused"));
    assertEquals(Optional.empty(),
        reason("ACCESS_REFUSED - write access to topic 'sport.x' in exchange 'publish' in vhost '/' refused"));
    assertEquals(Optional.empty(), reason("CONNECTION_FORCED - broker forced connection closure"));
  }

  @Test
  void aBrokerWithoutTheExchangeIsNoEntrance() {
    assertTrue(Refusal.isNoEntrance("NOT_FOUND - no exchange 'publish' in vhost '/'"));
    assertFalse(Refusal.isNoEntrance("NOT_FOUND - no queue 'publish' in vhost '/'"));
  }
}
