package io.newsfabric.publish;

import java.time.Duration;

/** The settings of a {@link Publisher}. */
public final class Settings {
  final String appId;
  boolean receipt = true;
  int copies = 1;
  Duration timeout = Duration.ofSeconds(30);
  Duration sendAgain = Duration.ofMillis(500);
  int window = 1000;

  /** The defaults, for publisher {@code appId}: {@code messageId}s are unique per {@code appId}. */
  public Settings(String appId) { this.appId = appId; }

  /** True: messages wait for a receipt; false: for a broker's confirm only. */
  public Settings receipt(boolean receipt) { this.receipt = receipt; return this; }

  /** The number of regions that get each message at once (1). */
  public Settings copies(int copies) { this.copies = copies; return this; }

  /** Time for which a message waits for its answer in all (30 s). */
  public Settings timeout(Duration timeout) { this.timeout = timeout; return this; }

  /** Time before it is sent again the first time (0.5 s); twice as long each time, up to 10 s. */
  public Settings sendAgain(Duration sendAgain) { this.sendAgain = sendAgain; return this; }

  /** The most messages on their way (1000). */
  public Settings window(int window) { this.window = window; return this; }
}
