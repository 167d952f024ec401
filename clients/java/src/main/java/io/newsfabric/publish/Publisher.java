package io.newsfabric.publish;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.ShutdownSignalException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Publishes to newsfabric, and reports the result: sends, waits, sends again.
 *
 * <p>A message is answered by a receipt (stored and routed), or, if so configured, by a broker's confirm. Without an
 * answer in time it is sent again with the same {@code messageId}, by which the fabric recognises it, and through
 * another broker: of the same region first, then of the next one. Each pause is longer.
 *
 * <p>May be used from any number of threads. {@link #close} it.
 */
public final class Publisher implements AutoCloseable {
  /** Time between checks for overdue answers, in ms. */
  private static final long LOOK_MS = 50;

  /** Time for which only the nearest region is awaited at first, before the next one is used. */
  private static final long FIRST_MS = 1_000;

  /** Time for which a broker may take to answer a close. */
  private static final long GOODBYE_MS = 2_000;

  private final Settings settings;
  private final List<Entrance> entrances = new ArrayList<>();
  private final Choice choice;
  /** By their secret. */
  private final Map<String, Sending> waiting = new ConcurrentHashMap<>();
  private final Semaphore room;
  private volatile boolean closed;
  private final long opened = now();
  private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(task -> {
    Thread thread = new Thread(task, "newsfabric publisher timer");
    thread.setDaemon(true);
    return thread;
  });

  /**
   * Publishes through a broker of the first of {@code regions} that answers. A region is the AMQP URLs of its brokers,
   * with commas between them; the nearest is first. It connects and reconnects by itself.
   *
   * @throws IllegalArgumentException for a bad URL, or none
   */
  public Publisher(List<String> regions, Settings settings) {
    if (regions.isEmpty()) {
      throw new IllegalArgumentException("a publisher needs the AMQP URLs of one region at least");
    }
    this.settings = settings;
    this.room = new Semaphore(settings.window);
    var listed = regions.stream().map(region -> region.split(",")).toList();
    for (String url : listed.stream().flatMap(Arrays::stream).toList()) {
      // Copies and repeats beside those of the window.
      entrances.add(new Entrance(entrances.size(), url.strip(), settings.appId, 2 * settings.window, this));
    }
    this.choice = new Choice(
        listed.stream().map(urls -> urls.length).toList(), settings.sendAgain.toMillis(), new Random());
    entrances.forEach(Thread::start);
    timer.scheduleWithFixedDelay(() -> waiting.values().forEach(this::offer), LOOK_MS, LOOK_MS, TimeUnit.MILLISECONDS);
  }

  /** Publish {@code json} without options; see {@link #publish(String, byte[], Options)}. */
  public Published publish(String topic, String json) { return publish(topic, json, new Options()); }

  /** The same, of JSON in UTF-8. */
  public Published publish(String topic, byte[] json) { return publish(topic, json, new Options()); }

  /** The same as {@link #publish(String, byte[], Options)}; text is written as UTF-8. */
  public Published publish(String topic, String json, Options options) {
    return answer(send(topic, json, options));
  }

  /**
   * Publish, and return when the message is routed ({@code receipt(false)}: confirmed).
   *
   * @throws PublishException {@code Rejected}, {@code Returned}, {@code AccessRefused} or {@code Unanswered}
   * @throws IllegalArgumentException for values that AMQP can't carry
   */
  public Published publish(String topic, byte[] json, Options options) {
    return answer(send(topic, json, options));
  }

  /** Begin to publish {@code json} without options; see {@link #send(String, byte[], Options)}. */
  public CompletableFuture<Published> send(String topic, String json) { return send(topic, json, new Options()); }

  /** The same, of JSON in UTF-8. */
  public CompletableFuture<Published> send(String topic, byte[] json) { return send(topic, json, new Options()); }

  /** The same as {@link #send(String, byte[], Options)}; text is written as UTF-8, which has no half emoji. */
  public CompletableFuture<Published> send(String topic, String json, Options options) {
    try {
      return send(topic, Sending.utf8(json), options);
    } catch (PublishException.Rejected e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  private static Published answer(CompletableFuture<Published> sending) {
    try {
      return sending.join();
    } catch (CompletionException e) {
      throw e.getCause() instanceof PublishException cause ? cause : e;
    }
  }

  /**
   * Begin to publish; the future holds the result or the exception of {@link #publish(String, byte[], Options)}. Waits
   * while {@code window} messages are on their way. Code that depends on the future must not block: it runs on the
   * connection's thread.
   *
   * @throws IllegalStateException once it is closed
   */
  public CompletableFuture<Published> send(String topic, byte[] json, Options options) {
    Sending sending = new Sending(topic, json, options, settings, now());
    var beyond = sending.beyondLimits();
    if (beyond.isPresent()) {
      return CompletableFuture.failedFuture(beyond.get());
    }
    room.acquireUninterruptibly();
    if (closed) {
      room.release();
      throw new IllegalStateException("the publisher is closed");
    }
    waiting.put(sending.secret, sending);
    sending.answer.whenComplete((published, error) -> {
      waiting.remove(sending.secret);
      room.release();
    });
    offer(sending);
    return sending.answer;
  }

  /** Wait for messages on their way, then close. A second call does nothing. */
  @Override
  public synchronized void close() {
    if (closed) {
      return;
    }
    room.acquireUninterruptibly(settings.window);
    closed = true;
    // Wakes the threads that wait to send, and later ones: they get an exception.
    room.release(settings.window);
    timer.shutdownNow();
    entrances.forEach(Thread::interrupt);
    try {
      for (Entrance entrance : entrances) {
        entrance.join(GOODBYE_MS);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /** If it is due, hand it to brokers of as many regions as wanted, to others each time: none is relied on. */
  private void offer(Sending sending) {
    synchronized (sending) {
      long now = now();
      if (now >= sending.deadline) {
        var trouble = Stream.of(troubles(), sending.trouble).filter(text -> !text.isEmpty());
        fail(sending, new PublishException.Unanswered(
            sending.messageId(), settings.timeout, trouble.collect(Collectors.joining("; ")), sending.wasTried()));
      }
      if (!sending.isDue(now) || sending.answer.isDone()) {
        return;
      }
      var usable = entrances.stream()
          .filter(e -> e.isUsable() && !sending.returned.containsKey(e.number)).map(e -> e.number).toList();
      if (!sending.wasTried() && entrances.stream().allMatch(Entrance::isRefused)) {
        fail(sending, new PublishException.AccessRefused(troubles()));
      } else if (usable.isEmpty() && choice.isInEachRegion(sending.returned.keySet())) {
        fail(sending, new PublishException.Returned(String.join("; ", sending.returned.values())));
      } else if (!usable.isEmpty() && !nearestConnects(sending.copies)) {
        boolean isNew = !sending.wasTried();
        sending.begin(now, choice.patience());
        for (int number : choice.among(usable, sending.course, sending.copies)) {
          sending.course.add(new Choice.Handed(number, now));
          entrances.get(number).publish(sending);
        }
        if (isNew) {
          choice.probed(usable, sending.course, sending.secret, now)
              .forEach(number -> entrances.get(number).publish(sending));
        }
      }
    }
  }

  /** True if one of the nearest regions may soon have a connection, and has none yet. */
  private boolean nearestConnects(int copies) {
    return now() - opened < FIRST_MS && entrances.stream()
        .collect(Collectors.groupingBy(e -> choice.region(e.number), TreeMap::new, Collectors.toList()))
        .values().stream().limit(copies).anyMatch(region ->
            region.stream().noneMatch(Entrance::isUsable) && !region.stream().allMatch(Entrance::isRefused));
  }

  private String troubles() {
    return entrances.stream().flatMap(e -> e.trouble().stream()).collect(Collectors.joining("; "));
  }

  void onConfirmed(Sending sending, Entrance by) {
    if (!sending.receipt && !sending.returned.containsKey(by.number)) {
      answered(by, sending.secret);
      sending.answer.complete(new Published(sending.messageId(), false, null, null, null, null, false));
    }
  }

  void onReturned(String secret, Entrance by, String text) {
    Sending sending = waiting.get(secret);
    if (sending != null) {
      sending.returned.put(by.number, text);
      sending.hurry();
    }
  }

  /** The message may be lost. A broker closes the channel for a bad message, and gives the reason. */
  void onLost(Sending sending, Entrance by, ShutdownSignalException why) {
    if (why != null && !why.isInitiatedByApplication() && why.getReason() instanceof AMQP.Channel.Close close) {
      String words = close.getReplyText();
      Refusal.reason(words, sending.topic, sending.body, sending.properties)
          .ifPresent(reason -> fail(sending, new PublishException.Rejected(reason, words)));
      if (Refusal.isNoEntrance(words)) {
        sending.returned.put(by.number, words);
      }
      sending.trouble = words;
    }
    sending.hurry();
  }

  /** There may be more than one answer to a message: the first counts. */
  void onReceipt(Entrance by, String secret, byte[] document) {
    Sending sending = waiting.get(secret);
    Map<String, String> receipt = Receipt.fields(new String(document, StandardCharsets.UTF_8));
    if ("rejected".equals(receipt.get("status")) || "routed".equals(receipt.get("status"))) {
      answered(by, secret);
    }
    if (sending != null && "rejected".equals(receipt.get("status"))) {
      fail(sending, new PublishException.Rejected(receipt.get("reason"), receipt.get("detail")));
    } else if (sending != null && "routed".equals(receipt.get("status"))) {
      sending.answer.complete(new Published(sending.messageId(), true, receipt.get("id"), receipt.get("identity"),
          receipt.get("region"), receipt.get("router"), "true".equals(receipt.get("repeated"))));
    }
  }

  private void answered(Entrance by, String secret) {
    choice.heard(by.number, secret, now());
    Sending sending = waiting.get(secret);
    if (sending != null) {
      choice.answered(by.number, sending.course, now());
    }
  }

  private static void fail(Sending sending, PublishException error) { sending.answer.completeExceptionally(error); }

  private static long now() { return System.nanoTime() / 1_000_000; }
}
