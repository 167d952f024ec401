package io.newsfabric.publish;

import com.rabbitmq.client.AMQP;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Finds the message for which a broker closed a channel, and the reason. Pure.
 *
 * <p>newsfabric/publish/refusals.py is the same in Python and gives the reasons: AMQP names no message, RabbitMQ's text
 * does.
 */
final class Refusal {
  private static final Pattern SIZE = Pattern.compile("PRECONDITION_FAILED - message size (\\d+) is larger");
  private static final Pattern EXPIRATION = Pattern.compile("PRECONDITION_FAILED - invalid expiration '(.*?)'");
  private static final Pattern USER = Pattern.compile("PRECONDITION_FAILED - user_id property set to '(.*?)'");

  private Refusal() {}

  /** The reason for which a broker's {@code words} refuse the message; empty if they mean another. */
  static Optional<String> reason(String words, String topic, byte[] body, AMQP.BasicProperties properties) {
    Matcher size = SIZE.matcher(words);
    Matcher expiration = EXPIRATION.matcher(words);
    Matcher user = USER.matcher(words);
    if (words.contains("ACCESS_REFUSED")) {
      boolean mine = words.contains("topic '" + topic + "'") || words.contains("access to exchange 'publish'");
      return mine ? Optional.of("publisher_not_allowed") : Optional.empty();
    } else if (size.find()) {
      return size.group(1).equals(Integer.toString(body.length)) ? Optional.of("too_large") : Optional.empty();
    } else if (expiration.find()) {
      return expiration.group(1).equals(properties.getExpiration()) ? Optional.of("bad_property") : Optional.empty();
    } else if (user.find()) {
      return user.group(1).equals(properties.getAppId()) ? Optional.of("publisher_not_allowed") : Optional.empty();
    }
    return Optional.empty();
  }

  /** True if the broker takes no publisher's message: it isn't the fabric's entrance, or not any more. */
  static boolean isNoEntrance(String words) { return words.contains("NOT_FOUND - no exchange 'publish'"); }
}
