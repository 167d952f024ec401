package io.newsfabric.publish;

import com.rabbitmq.client.AMQP;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.CompletableFuture;

/** One message under way. Its fields are guarded by itself; {@code answer} decides, once. */
final class Sending {
  static final long SEND_AGAIN_AT_LAST = 10_000;

  final String topic;
  final AMQP.BasicProperties properties;
  final byte[] body;
  final boolean receipt;
  final int copies;
  final long deadline;
  final CompletableFuture<Published> answer = new CompletableFuture<>();

  /** Regions whose broker gave it back. */
  private final Set<Entrance> returned = new HashSet<>();

  private long pause;
  private long due;
  private int turn;

  /** Times are in ms of {@link System#nanoTime}. */
  Sending(
      String topic,
      AMQP.BasicProperties properties,
      byte[] body,
      boolean receipt,
      int copies,
      long deadline,
      long pause) {
    this.topic = topic;
    this.properties = properties;
    this.body = body;
    this.receipt = receipt;
    this.copies = copies;
    this.deadline = deadline;
    this.pause = pause;
  }

  String messageId() {
    return properties.getMessageId();
  }

  /** The number of this try; the next is due after twice the pause of the last. */
  synchronized int begin(long now) {
    due = now + pause;
    pause = Math.min(2 * pause, SEND_AGAIN_AT_LAST);
    return turn++;
  }

  synchronized void tryAgainAt(long now) {
    due = now;
  }

  synchronized boolean isDue(long now) {
    return now >= due;
  }

  synchronized boolean wasReturnedBy(Entrance entrance) {
    return returned.contains(entrance);
  }

  /** Note it; how many regions have returned it by now. */
  synchronized int returnedBy(Entrance entrance) {
    returned.add(entrance);
    return returned.size();
  }
}
