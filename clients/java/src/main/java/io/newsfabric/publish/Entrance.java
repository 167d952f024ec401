package io.newsfabric.publish;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One region as a publisher sees it: a connection to its client cluster and the queue for receipts.
 *
 * <p>A thread of its own connects, and connects again, until it is closed. The library's own recovery
 * is not used: it brings channels back but not what was unconfirmed on them.
 */
final class Entrance implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(Publisher.class);
  private static final int TIMEOUT_MS = 5_000;
  private static final int HEARTBEAT_SECONDS = 10;
  private static final long FIRST_PAUSE_MS = 200;
  private static final long LAST_PAUSE_MS = 5_000;

  /** What comes back. Called on the connection's threads. */
  interface Listener {
    void confirmed(Sending sending);

    void returned(Sending sending, Entrance by, String text);

    /** It may not have arrived; {@code reason} is the broker's, null when the connection broke. */
    void lost(Sending sending, AMQP.Channel.Close reason);

    void receipt(String correlationId, byte[] document);
  }

  private record Open(
      Connection connection,
      Channel channel,
      ConcurrentNavigableMap<Long, Sending> unconfirmed,
      Set<String> returned) {}

  private final List<String> urls;
  private final String replyTo;

  /** Said where it is what we log in as: a broker vouches for it then. Otherwise null. */
  private final String userId;

  private final Listener listener;
  private final Thread thread;
  private final CountDownLatch closing = new CountDownLatch(1);
  private volatile Open open;
  private volatile boolean blocked;

  Entrance(String region, String replyTo, String appId, Listener listener) {
    this.urls = Arrays.stream(region.split(",")).map(String::strip).toList();
    this.replyTo = replyTo;
    this.listener = listener;
    // A bad URL is an error here and now.
    boolean known = urls.stream().map(Entrance::factory).allMatch(f -> f.getUsername().equals(appId));
    this.userId = known ? appId : null;
    thread = new Thread(this::run, "newsfabric publisher " + replyTo);
    thread.setDaemon(true);
    thread.start();
  }

  boolean isConnected() {
    return open != null && !blocked;
  }

  /** Publish; false if the connection is gone. What became of it the listener is told. */
  synchronized boolean publish(Sending sending) {
    Open now = open;
    if (now == null) {
      return false;
    }
    long tag = now.channel.getNextPublishSeqNo();
    now.unconfirmed.put(tag, sending);
    try {
      AMQP.BasicProperties properties = sending.properties.builder().replyTo(replyTo).userId(userId).build();
      now.channel.basicPublish("publish", sending.topic, true, properties, sending.body);
      return true;
    } catch (IOException | ShutdownSignalException e) {
      now.unconfirmed.remove(tag);
      return false;
    }
  }

  @Override
  public void close() {
    closing.countDown();
    Open now = open;
    if (now != null) {
      now.connection.abort(TIMEOUT_MS);
    }
    thread.interrupt();
  }

  private void run() {
    long pause = FIRST_PAUSE_MS;
    String said = "";
    while (closing.getCount() > 0) {
      try (Connection connection = connect()) {
        pause = FIRST_PAUSE_MS;
        said = "";
        use(connection);
      } catch (IOException | ShutdownSignalException e) {
        if (closing.getCount() > 0 && !said.equals(String.valueOf(e))) {
          said = String.valueOf(e);
          LOG.warn("publisher: {}; trying again", said);
        }
      } catch (InterruptedException e) {
        return;
      }
      try {
        closing.await(ThreadLocalRandom.current().nextLong(pause) + 1, TimeUnit.MILLISECONDS);
      } catch (InterruptedException e) {
        return;
      }
      pause = Math.min(2 * pause, LAST_PAUSE_MS);
    }
  }

  private Connection connect() throws IOException {
    List<String> shuffled = new ArrayList<>(urls);
    Collections.shuffle(shuffled);
    IOException last = null;
    for (String url : shuffled) {
      try {
        return factory(url).newConnection("publisher " + replyTo);
      } catch (IOException e) {
        last = e;
      } catch (java.util.concurrent.TimeoutException e) {
        last = new IOException(e);
      }
    }
    throw last;
  }

  private static ConnectionFactory factory(String url) {
    ConnectionFactory factory = new ConnectionFactory();
    try {
      factory.setUri(url);
    } catch (Exception e) {
      throw new IllegalArgumentException("not an AMQP URL: " + url.replaceFirst("//.*@", "//"), e);
    }
    factory.setAutomaticRecoveryEnabled(false);
    factory.setRequestedHeartbeat(HEARTBEAT_SECONDS);
    factory.setConnectionTimeout(TIMEOUT_MS);
    return factory;
  }

  /** Declare, then publish and listen until the connection or its channel is gone. */
  private void use(Connection connection) throws IOException, InterruptedException {
    Channel channel = connection.createChannel();
    Open now = new Open(connection, channel, new ConcurrentSkipListMap<>(), ConcurrentHashMap.newKeySet());
    channel.confirmSelect();
    channel.addConfirmListener(
        (tag, multiple) -> settle(now, tag, multiple, true),
        (tag, multiple) -> settle(now, tag, multiple, false));
    // It names no tag, and comes before the confirm of its message.
    channel.addReturnListener(back -> now.returned.add(back.getProperties().getMessageId()));
    channel.queueDeclare(replyTo, false, true, true, null);
    channel.queueBind(replyTo, "receipts", replyTo);
    channel.basicConsume(
        replyTo,
        true,
        (consumer, delivery) -> {
          String correlationId = delivery.getProperties().getCorrelationId();
          if ("receipt".equals(delivery.getProperties().getType()) && correlationId != null) {
            listener.receipt(correlationId, delivery.getBody());
          }
        },
        consumer -> channel.abort());
    CountDownLatch gone = new CountDownLatch(1);
    channel.addShutdownListener(cause -> gone.countDown());
    connection.addBlockedListener(reason -> blocked = true, () -> blocked = false);
    open = now;
    try {
      gone.await();
    } finally {
      blocked = false;
      lose(now);
    }
  }

  private void settle(Open now, long tag, boolean multiple, boolean taken) {
    var settled = multiple ? now.unconfirmed.headMap(tag, true) : now.unconfirmed.subMap(tag, true, tag, true);
    for (Sending sending : settled.values()) {
      if (now.returned.remove(sending.messageId())) {
        listener.returned(sending, this, "no queue for topic " + sending.topic);
      } else if (taken) {
        listener.confirmed(sending);
      }
      // Refused by the broker: it is sent again when its pause is over.
    }
    settled.clear();
  }

  private void lose(Open now) {
    synchronized (this) {
      open = null;
    }
    ShutdownSignalException why = now.channel.getCloseReason();
    AMQP.Channel.Close reason = why != null && why.getReason() instanceof AMQP.Channel.Close close ? close : null;
    now.unconfirmed.values().forEach(sending -> listener.lost(sending, reason));
  }
}
