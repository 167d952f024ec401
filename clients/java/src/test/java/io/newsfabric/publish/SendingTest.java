package io.newsfabric.publish;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class SendingTest {
  private final Sending sending =
      new Sending("news.x", new byte[0], new Options(), new Settings("cms"), 0);

  @Test
  void itWaitsTwiceAsLongEachTimeUpToTenSeconds() {
    List<Long> pauses = new ArrayList<>();
    long now = 0;
    for (int n = 0; n < 7; n++) {
      sending.begin(now, 500);
      long began = now;
      while (!sending.isDue(now)) {
        now += 250;
      }
      pauses.add(now - began);
    }
    assertEquals(List.of(500L, 1_000L, 2_000L, 4_000L, 8_000L, 10_000L, 10_000L), pauses);
  }

  @Test
  void whatWasLostIsDueAtOnce() {
    sending.begin(0, 500);
    assertFalse(sending.isDue(1));
    sending.hurry();
    assertTrue(sending.isDue(1));
  }

  @Test
  void halfAnEmojiIsRejectedAndItSaysWhere() {
    String cut = "{\"headline\": \"Comet \ud83d\"}";
    var rejected = assertThrows(PublishException.Rejected.class, () -> Sending.utf8(cut));
    assertEquals("not_json", rejected.reason());
    assertEquals("a lone surrogate at character 20 of the body, after '{\"headline\": \"Comet '", rejected.detail());
    assertThrows(PublishException.Rejected.class, () -> Sending.utf8("\ude00"));
    assertArrayEquals("\"\ud83d\ude00\"".getBytes(StandardCharsets.UTF_8), Sending.utf8("\"\ud83d\ude00\""));
  }

  @Test
  void whatIsOverTheLimitsIsRejectedBeforeItIsSent() {
    var settings = new Settings("cms");
    var large = new Sending("news.x", new byte[65_537], new Options(), settings, 0).beyondLimits();
    assertEquals("too_large: 65537 bytes, at most 65536; it was not sent", large.orElseThrow().getMessage());
    var named = new Sending("news.x", new byte[65_536], new Options().key("k".repeat(256)), settings, 0);
    assertEquals("bad_header: key has 256 bytes, at most 255", named.beyondLimits().orElseThrow().getMessage());
    assertTrue(new Sending("news.x", new byte[65_536], new Options(), settings, 0).beyondLimits().isEmpty());
  }
}
