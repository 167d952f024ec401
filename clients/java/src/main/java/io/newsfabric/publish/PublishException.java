package io.newsfabric.publish;

import java.time.Duration;

/** A message could not be published, or its result is unknown. */
@SuppressWarnings("serial") // exceptions are never serialised
public abstract sealed class PublishException extends RuntimeException {
  private PublishException(String text) { super(text); }

  /** The fabric can't accept the message. Sending it again won't help, except for the reason {@code overload}. */
  public static final class Rejected extends PublishException {
    private final String reason;
    private final String detail;

    Rejected(String reason, String detail) {
      super(reason + ": " + detail);
      this.reason = reason;
      this.detail = detail;
    }

    /** The reason: a word of the table in docs/publishing.md. */
    public String reason() { return reason; }

    /** The explanation for a person. */
    public String detail() { return detail; }
  }

  /** Brokers took the message and gave it back: no queue of the fabric is bound there. */
  public static final class Returned extends PublishException {
    Returned(String text) { super(text); }
  }

  /**
   * The message was not sent, and waiting won't help: every broker refuses the login, the virtual
   * host or the queue for receipts, or has a certificate that can't be trusted.
   */
  public static final class AccessRefused extends PublishException {
    AccessRefused(String text) { super(text); }
  }

  /**
   * Neither receipt nor confirm in time: the message may have been routed, unless {@code sent} is
   * false. Publish it again with this {@code messageId}, and readers get it once.
   */
  public static final class Unanswered extends PublishException {
    private final String messageId;
    private final boolean sent;

    /** {@code trouble} is the reason for a missing or closed connection; "" if none is known. */
    Unanswered(String messageId, Duration timeout, String trouble, boolean sent) {
      super("no answer within %s; %s: publish it again with messageId %s%s".formatted(
          timeout,
          sent ? "the message may have been routed nevertheless" : "nothing was sent",
          messageId,
          trouble.isEmpty() ? "" : " (" + trouble + ")"));
      this.messageId = messageId;
      this.sent = sent;
    }

    /** True if a broker was given the message; if not, nobody has it. */
    public boolean sent() { return sent; }

    /** The idempotency key of the message. */
    public String messageId() { return messageId; }
  }
}
