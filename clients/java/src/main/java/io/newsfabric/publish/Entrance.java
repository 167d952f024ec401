package io.newsfabric.publish;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.PossibleAuthenticationFailureException;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.security.cert.CertificateException;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One broker in the publisher's view: a connection to it and the queue for receipts from it.
 *
 * <p>A thread of its own connects, again and again, until it is interrupted; another one writes, so that no
 * caller waits for a broker that has stopped reading. The library's own recovery is not used: it restores
 * channels but not their unconfirmed messages.
 */
final class Entrance extends Thread {
  private static final Logger LOG = LoggerFactory.getLogger(Publisher.class);
  private static final long FIRST_PAUSE_MS = 200;
  private static final long LAST_PAUSE_MS = 5_000;

  /** Time for which a broker may be silent while a confirm is due. A heartbeat takes four times as long to notice. */
  private static final long SILENCE_MS = 5_000;
  private static final long LOOK_MS = 250;
  private static final int GOODBYE_MS = 2_000;

  /** Ends a connection, without waiting for a broker that doesn't answer the close. */
  private record Goodbye(Connection connection) implements AutoCloseable {
    @Override
    public void close() { connection.abort(GOODBYE_MS); }
  }

  /** The reason why there is no connection to a broker; {@code refused} if waiting won't help. */
  private record Trouble(String text, boolean refused) {}

  final int number;

  private final Publisher publisher;
  private final Broker broker;

  /** The most unconfirmed messages: those of a broker that hangs are no burden. */
  private final int room;

  private final AtomicInteger unwritten = new AtomicInteger();
  private final ExecutorService writer = Executors.newSingleThreadExecutor(task -> {
    Thread thread = new Thread(task, getName() + " writer");
    thread.setDaemon(true);
    return thread;
  });

  /** The queue for receipts of this connection. The broker names it: a publisher's rights cover no other. */
  private volatile String replyTo;

  /** Set if it equals the login: the broker then vouches for it. Otherwise null. */
  private final String userId;

  private volatile boolean blocked;
  private volatile boolean writing;
  private volatile Channel channel;
  private volatile Trouble trouble;
  private volatile Map<Long, Sending> unconfirmed = Map.of();

  Entrance(int number, String url, String appId, int room, Publisher publisher) {
    super("newsfabric publisher " + appId);
    setDaemon(true);
    this.number = number;
    this.room = room;
    this.publisher = publisher;
    this.broker = new Broker(url);
    this.userId = broker.getUsername().equals(appId) ? appId : null;
  }

  /** True if it accepts a message now. */
  boolean isUsable() { return channel != null && !blocked && unwritten.get() + unconfirmed.size() < room; }

  /** True if the broker refused the last connection. */
  boolean isRefused() { return channel == null && trouble != null && trouble.refused; }

  /** The reason why there is no connection. */
  Optional<String> trouble() { return Optional.ofNullable(trouble).map(Trouble::text); }

  /** Publish; the publisher is notified of the result. No caller waits for the broker here. */
  void publish(Sending sending) {
    unwritten.incrementAndGet();
    writer.execute(() -> {
      unwritten.decrementAndGet();
      write(sending);
    });
  }

  private synchronized void write(Sending sending) {
    if (channel == null) {
      sending.hurry();
      return;
    }
    unconfirmed.put(channel.getNextPublishSeqNo(), sending);
    var properties = sending.properties.builder().replyTo(replyTo).userId(userId).build();
    writing = true;
    try {
      channel.basicPublish("publish", sending.topic, true, properties, sending.body);
    } catch (IOException | ShutdownSignalException e) {
      LOG.debug("publisher: the connection goes", e); // use() reports the messages on their way
    } finally {
      writing = false;
    }
  }

  @Override
  public void run() {
    for (long pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LAST_PAUSE_MS)) {
      try {
        if (use()) {
          pause = FIRST_PAUSE_MS;
        }
        sleep(ThreadLocalRandom.current().nextLong(pause) + 1);
      } catch (InterruptedException e) {
        writer.shutdownNow();
        return;
      }
    }
  }

  /** Connect, publish and listen until the connection or its channel is gone; false if there never was one. */
  private boolean use() {
    try (Goodbye goodbye = new Goodbye(broker.newConnection(getName()))) {
      CountDownLatch gone = new CountDownLatch(1);
      var sent = new ConcurrentSkipListMap<Long, Sending>();
      Channel opened = open(goodbye.connection, sent);
      opened.addShutdownListener(cause -> gone.countDown());
      synchronized (this) {
        unconfirmed = sent;
        channel = opened;
      }
      trouble = null;
      try {
        cutIfSilent(sent, gone);
      } finally {
        if (writing) {
          // The writer would block on a connection that nobody reads, and this thread would wait for it.
          broker.cut();
        }
        synchronized (this) {
          channel = null;
          blocked = false;
        }
        sent.values().forEach(sending -> publisher.onLost(sending, this, opened.getCloseReason()));
      }
      return true;
    } catch (InterruptedException e) {
      interrupt();
      return true;
    } catch (IOException | TimeoutException | ShutdownSignalException e) {
      Trouble now = trouble(broker, e);
      if (!now.equals(trouble)) {
        LOG.warn("publisher: {}; trying again", now.text);
      }
      trouble = now;
      return false;
    }
  }

  /** Wait until it is gone; cut it when the oldest confirm is overdue, unless the broker has given a reason. */
  private void cutIfSilent(ConcurrentSkipListMap<Long, Sending> sent, CountDownLatch gone)
      throws InterruptedException {
    Map.Entry<Long, Sending> oldest = null;
    long since = System.nanoTime();
    while (!gone.await(LOOK_MS, TimeUnit.MILLISECONDS)) {
      var first = sent.firstEntry();
      if (first == null || (blocked && !writing) || !first.equals(oldest)) {
        oldest = first;
        since = System.nanoTime();
      } else if (System.nanoTime() - since > SILENCE_MS * 1_000_000) {
        LOG.warn("publisher: {} is silent; trying others", broker);
        broker.cut();
      }
    }
  }

  private Channel open(Connection connection, ConcurrentNavigableMap<Long, Sending> sent) throws IOException {
    connection.addBlockedListener(reason -> blocked = true, () -> blocked = false);
    Channel opened = connection.createChannel();
    opened.confirmSelect();
    opened.addConfirmListener(
        (tag, multiple) -> onConfirm(sent, tag, multiple, true),
        (tag, multiple) -> onConfirm(sent, tag, multiple, false));
    // The return arrives before the confirm of its message.
    opened.addReturnListener(back -> publisher.onReturned(
        back.getProperties().getCorrelationId(), this, back.getReplyText() + ", topic " + back.getRoutingKey()));
    replyTo = opened.queueDeclare("", false, true, true, null).getQueue();
    opened.basicConsume(replyTo, true, (consumer, delivery) -> {
      var properties = delivery.getProperties();
      if ("receipt".equals(properties.getType()) && properties.getCorrelationId() != null) {
        publisher.onReceipt(this, properties.getCorrelationId(), delivery.getBody());
      }
    }, consumer -> {
      LOG.warn("publisher: {} has deleted the queue for receipts; connecting anew", broker);
      opened.abort();
    });
    return opened;
  }

  private void onConfirm(ConcurrentNavigableMap<Long, Sending> sent, long tag, boolean multiple, boolean taken) {
    var settled = multiple ? sent.headMap(tag, true) : sent.subMap(tag, true, tag, true);
    if (taken) {
      settled.values().forEach(sending -> publisher.onConfirmed(sending, this));
    } // else refused by the broker: sent again when its pause is over
    settled.clear();
  }

  /** The most informative of the causes of {@code error}. */
  private static Trouble trouble(Broker broker, Throwable error) {
    for (Throwable e = error; e != null; e = e.getCause()) {
      if (e instanceof PossibleAuthenticationFailureException || e instanceof CertificateException) {
        return new Trouble(broker + ": " + e.getMessage(), true);
      }
      Object reason = e instanceof ShutdownSignalException closed ? closed.getReason() : null;
      if (reason instanceof AMQP.Connection.Close close) {
        return new Trouble(broker + ": " + close.getReplyText(), refuses(close));
      }
      if (reason instanceof AMQP.Channel.Close close) {
        return new Trouble(broker + ": " + close.getReplyText(), close.getReplyCode() == AMQP.ACCESS_REFUSED);
      }
    }
    return new Trouble(broker + ": " + error, false);
  }

  /** True if waiting won't help. With too many connections it helps: others leave, or operators raise the limit. */
  private static boolean refuses(AMQP.Connection.Close close) {
    return close.getReplyCode() == AMQP.ACCESS_REFUSED
        || (close.getReplyCode() == AMQP.NOT_ALLOWED && !close.getReplyText().contains("connection limit"));
  }
}
