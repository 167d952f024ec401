package io.newsfabric.publish;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

class BrokerTest {
  private static String refusal(String url) {
    return assertThrows(IllegalArgumentException.class, () -> new Broker(url)).getMessage();
  }

  @Test
  void aBadUrlDoesNotShowItsPassword() {
    for (String url : List.of(
        "http://cms:secret@oregon/%2F",
        "amqp://cms:pass/secret@oregon/%2F",
        "amqp://cms:12/more/secret@oregon/%2F",
        "amqp://cms:at@secret@oregon/%2F",
        "amqp://cms:a secret@oregon/%2F",
        "cms:secret@oregon",
        "amqp://cms:secret@oregon/%2F?cacertfile=/nowhere/ca.pem&verify=none")) {
      String text = refusal(url);
      assertFalse(text.contains("secret"), text);
      assertTrue(text.contains("oregon"), text);
    }
  }

  @Test
  void aUrlWithoutAHostIsRefused() {
    for (String url : List.of("amqp://cms:pass/word@oregon/%2F", "amqp://oregon_1", "amqp:///%2F")) {
      assertTrue(refusal(url).contains("no host is in it"), url);
    }
  }

  @Test
  void theHostOfAUrlIsConnectedTo() {
    assertEquals("oregon:5672", new Broker("amqp://cms:secret%2F@oregon/%2F").toString());
  }
}
