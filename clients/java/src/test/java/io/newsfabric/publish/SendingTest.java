package io.newsfabric.publish;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

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
}
