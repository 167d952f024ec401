package io.newsfabric.publish;

import com.rabbitmq.client.AMQP;
import java.nio.charset.StandardCharsets;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Stream;

/** One message on its way; {@code answer} decides, once. Times are in ms of {@link System#nanoTime}. */
final class Sending {
  static final long SEND_AGAIN_AT_LAST = 10_000;

  /** Routers' limit; a client broker closes the channel for a body twice as large. */
  static final int MAX_BODY = 64 * 1024;

  static final int MAX_TEXT = 255;

  /** The key of its receipts. Not the messageId: anybody who can guess it could answer for a router. */
  final String secret = UUID.randomUUID().toString();

  final String topic;
  final byte[] body;
  final AMQP.BasicProperties properties;
  final boolean receipt;
  final int copies;
  final long deadline;
  final CompletableFuture<Published> answer = new CompletableFuture<>();

  /** By broker, the reason why it returned the message. */
  final Map<Integer, String> returned = new ConcurrentHashMap<>();

  /** The brokers that it was handed to. */
  final List<Choice.Handed> course = new CopyOnWriteArrayList<>();

  /** The text with which a broker last closed the message's channel. */
  volatile String trouble = "";

  private long pause;
  private int turn;
  private volatile long due = Long.MIN_VALUE;

  Sending(String topic, byte[] json, Options options, Settings settings, long now) {
    this.topic = topic;
    this.body = json;
    this.receipt = options.receipt != null ? options.receipt : settings.receipt;
    this.copies = options.copies != null ? options.copies : settings.copies;
    this.deadline = now + settings.timeout.toMillis();
    String messageId = options.messageId != null ? options.messageId : UUID.randomUUID().toString();
    Date published = new Date();
    Map<String, Object> headers = new HashMap<>(options.headers);
    headers.put("timestamp_in_ms", published.getTime());
    this.properties = new AMQP.BasicProperties.Builder()
        .contentType("application/json")
        .deliveryMode(1)
        .appId(settings.appId)
        .messageId(messageId)
        .correlationId(secret)
        .type(options.type)
        .expiration(options.expiration)
        .timestamp(published)
        .headers(headers)
        .build();
    // AMQP 0-9-1 section 4.2.5.3. Checked here, because later it would cost the connection.
    if (Stream.of(topic, messageId, settings.appId, options.type == null ? "" : options.type)
        .anyMatch(text -> text.getBytes(StandardCharsets.UTF_8).length > MAX_TEXT)) {
      throw new IllegalArgumentException("topic, messageId, appId and type have at most 255 bytes");
    }
  }

  /** {@code text} in UTF-8; Rejected for a lone surrogate, which {@link String#getBytes} would make a "?". */
  static byte[] utf8(String text) {
    for (int at = 0; at < text.length(); at++) {
      if (Character.isHighSurrogate(text.charAt(at)) && at + 1 < text.length()
          && Character.isLowSurrogate(text.charAt(at + 1))) {
        at++;
      } else if (Character.isSurrogate(text.charAt(at))) {
        String beside = text.substring(Math.max(0, at - 20), at);
        throw new PublishException.Rejected(
            "not_json", "a lone surrogate at character %d of the body, after '%s'".formatted(at, beside));
      }
    }
    return text.getBytes(StandardCharsets.UTF_8);
  }

  /** Values that would cost a channel or connection, refused in a router's words. */
  Optional<PublishException> beyondLimits() {
    if (body.length > MAX_BODY) {
      String detail = "%d bytes, at most %d; it was not sent".formatted(body.length, MAX_BODY);
      return Optional.of(new PublishException.Rejected("too_large", detail));
    }
    for (String name : List.of("key", "traceparent")) {
      if (properties.getHeaders().get(name) instanceof String text) {
        int size = text.getBytes(StandardCharsets.UTF_8).length;
        if (size > MAX_TEXT) {
          String detail = "%s has %d bytes, at most %d".formatted(name, size, MAX_TEXT);
          return Optional.of(new PublishException.Rejected("bad_header", detail));
        }
      }
    }
    return Optional.empty();
  }

  String messageId() { return properties.getMessageId(); }

  boolean wasTried() { return turn > 0; }

  boolean isDue(long now) { return now >= due; }

  /** Try again as soon as possible. */
  void hurry() { due = Long.MIN_VALUE; }

  /** Begin a try; the next is due after {@code first} ms, and then after twice the last pause. */
  void begin(long now, long first) {
    pause = turn++ == 0 ? first : Math.max(first, Math.min(2 * pause, SEND_AGAIN_AT_LAST));
    due = now + pause;
  }
}
