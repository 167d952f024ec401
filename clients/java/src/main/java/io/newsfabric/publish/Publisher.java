package io.newsfabric.publish;

import com.rabbitmq.client.AMQP;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/**
 * Publishes to newsfabric, and knows what became of it: sends, waits, sends again.
 *
 * <p>A message is answered by a receipt (stored and routed), or, told so, by a broker's confirm.
 * Without an answer in time it is sent again with the same {@code messageId}, which the fabric knows for
 * the same message, and by the next region that is connected; each time it waits longer.
 *
 * <p>May be used from any number of threads. {@link #close} it.
 */
public final class Publisher implements AutoCloseable {
  /** How often messages are looked at whose answer stays away, in ms. */
  private static final long LOOK_MS = 50;

  /** How long the nearest region is waited for at first, before the next one is used. */
  private static final long FIRST_MS = 1_000;

  private final Settings settings;
  private final List<Entrance> entrances = new ArrayList<>();
  private final Map<String, Sending> waiting = new ConcurrentHashMap<>();
  private final Semaphore room;
  private final long opened = now();
  private final ScheduledExecutorService timer =
      Executors.newSingleThreadScheduledExecutor(
          task -> {
            Thread thread = new Thread(task, "newsfabric publisher timer");
            thread.setDaemon(true);
            return thread;
          });

  /**
   * Publishes to the first of {@code regions} that answers. A region is the AMQP URLs of its client
   * cluster, with commas between them; the nearest comes first. It connects by itself, also again.
   *
   * @throws IllegalArgumentException for a bad URL, or none
   */
  public Publisher(List<String> regions, Settings settings) {
    if (regions.isEmpty()) {
      throw new IllegalArgumentException("a publisher needs the AMQP URLs of one region at least");
    }
    this.settings = settings;
    this.room = new Semaphore(settings.window);
    for (String region : regions) {
      // A publisher's rights (docs/guarantees.md) cover what begins with its name.
      String replyTo = settings.appId + ".receipts." + UUID.randomUUID();
      entrances.add(new Entrance(region, replyTo, settings.appId, new Answers()));
    }
    timer.scheduleWithFixedDelay(this::look, LOOK_MS, LOOK_MS, TimeUnit.MILLISECONDS);
  }

  /** Publish {@code json} with nothing else said; see {@link #publish(String, String, Options)}. */
  public Published publish(String topic, String json) {
    return publish(topic, json, new Options());
  }

  /**
   * Publish, and return when it is known to be routed ({@code receipt(false)}: taken).
   *
   * @throws PublishException {@code Rejected}, {@code Returned} or {@code Unanswered}
   * @throws IllegalArgumentException for what AMQP can't carry, or a messageId that is under way
   */
  public Published publish(String topic, String json, Options options) {
    try {
      return send(topic, json.getBytes(StandardCharsets.UTF_8), options).join();
    } catch (CompletionException e) {
      if (e.getCause() instanceof PublishException cause) {
        throw cause;
      }
      throw e;
    }
  }

  /**
   * Begin to publish; the future holds what {@link #publish} returns or throws. Waits while {@code
   * window} messages are under way. What depends on the future must not block: it runs on the
   * connection's thread.
   */
  public CompletableFuture<Published> send(String topic, byte[] json, Options options) {
    Sending sending = sending(topic, json, options);
    if (!acquire(sending)) {
      return CompletableFuture.failedFuture(
          new PublishException.Unanswered(sending.messageId(), settings.timeout));
    }
    if (waiting.putIfAbsent(sending.messageId(), sending) != null) {
      room.release();
      throw new IllegalArgumentException("messageId " + sending.messageId() + " is under way already");
    }
    offer(sending);
    return sending.answer;
  }

  /** Wait for what is under way, then close. */
  @Override
  public void close() {
    room.acquireUninterruptibly(settings.window);
    timer.shutdownNow();
    entrances.forEach(Entrance::close);
  }

  private boolean acquire(Sending sending) {
    try {
      return room.tryAcquire(Math.max(0, sending.deadline - now()), TimeUnit.MILLISECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return false;
    }
  }

  private Sending sending(String topic, byte[] json, Options options) {
    String messageId = options.messageId != null ? options.messageId : UUID.randomUUID().toString();
    long milliseconds = System.currentTimeMillis();
    Map<String, Object> headers = new HashMap<>(options.headers);
    headers.put("timestamp_in_ms", milliseconds);
    AMQP.BasicProperties properties =
        new AMQP.BasicProperties.Builder()
            .contentType("application/json")
            .deliveryMode(1)
            .appId(settings.appId)
            .messageId(messageId)
            .correlationId(messageId)
            .type(options.type)
            .expiration(options.expiration)
            .timestamp(new java.util.Date(milliseconds))
            .headers(headers)
            .build();
    for (String text : Arrays.asList(topic, messageId, settings.appId, options.type, options.expiration)) {
      requireShort(text);
    }
    return new Sending(
        topic,
        properties,
        json,
        options.receipt != null ? options.receipt : settings.receipt,
        options.copies != null ? options.copies : settings.copies,
        now() + settings.timeout.toMillis(),
        settings.sendAgain.toMillis());
  }

  /** Hand it to as many regions as wanted, each time beginning with the next: none is relied on. */
  private void offer(Sending sending) {
    List<Entrance> usable =
        entrances.stream().filter(e -> e.isConnected() && !sending.wasReturnedBy(e)).toList();
    if (usable.isEmpty() || nearestConnects(sending.copies)) {
      return; // looked at again soon
    }
    int turn = sending.begin(now());
    boolean taken = false;
    for (int n = 0; n < Math.min(sending.copies, usable.size()); n++) {
      taken |= usable.get((turn + n) % usable.size()).publish(sending);
    }
    if (!taken) {
      sending.tryAgainAt(now());
    }
  }

  /** AMQP 0-9-1 section 4.2.5.3. Said here, because on the way out it would cost the connection. */
  private static void requireShort(String text) {
    if (text != null && text.getBytes(StandardCharsets.UTF_8).length > 255) {
      throw new IllegalArgumentException("topic, messageId, appId and type have at most 255 bytes");
    }
  }

  private boolean nearestConnects(int copies) {
    return now() - opened < FIRST_MS && entrances.stream().limit(copies).anyMatch(e -> !e.isConnected());
  }

  private void look() {
    long now = now();
    for (Sending sending : waiting.values()) {
      if (now >= sending.deadline) {
        fail(sending, new PublishException.Unanswered(sending.messageId(), settings.timeout));
      } else if (sending.isDue(now)) {
        offer(sending);
      }
    }
  }

  private void answer(Sending sending, Published published) {
    if (waiting.remove(sending.messageId(), sending)) {
      room.release();
      sending.answer.complete(published);
    }
  }

  private void fail(Sending sending, PublishException error) {
    if (waiting.remove(sending.messageId(), sending)) {
      room.release();
      sending.answer.completeExceptionally(error);
    }
  }

  private static long now() {
    return System.nanoTime() / 1_000_000;
  }

  /** What entrances hear. */
  private final class Answers implements Entrance.Listener {
    @Override
    public void confirmed(Sending sending) {
      if (!sending.receipt) {
        answer(sending, Published.taken(sending.messageId()));
      }
    }

    @Override
    public void returned(Sending sending, Entrance by, String text) {
      if (sending.returnedBy(by) == entrances.size()) {
        fail(sending, new PublishException.Returned(text));
      } else {
        sending.tryAgainAt(now());
      }
    }

    @Override
    public void lost(Sending sending, AMQP.Channel.Close reason) {
      if (reason != null && refuses(reason, sending.topic)) {
        fail(sending, new PublishException.Rejected("publisher_not_allowed", reason.getReplyText()));
      } else {
        sending.tryAgainAt(now());
      }
    }

    /** A broker that knows rights closes the channel for a message outside them, and says which. */
    private boolean refuses(AMQP.Channel.Close reason, String topic) {
      String text = reason.getReplyText();
      return reason.getReplyCode() == AMQP.ACCESS_REFUSED
          && (text.contains("access to exchange 'publish'") || text.contains("topic '" + topic + "'"));
    }

    @Override
    public void receipt(String correlationId, byte[] document) {
      Sending sending = waiting.get(correlationId);
      if (sending == null) {
        return;
      }
      Map<String, String> receipt = Receipt.fields(new String(document, StandardCharsets.UTF_8));
      // More than one may come for one message: the first counts.
      if ("rejected".equals(receipt.get("status"))) {
        fail(sending, new PublishException.Rejected(receipt.get("reason"), receipt.get("detail")));
      } else if ("routed".equals(receipt.get("status"))) {
        answer(sending, Receipt.published(sending.messageId(), receipt));
      }
    }
  }
}
