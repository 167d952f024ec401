package io.newsfabric.publish;

import java.util.HashMap;
import java.util.Map;

/**
 * The options of one message beside its topic and body; docs/publishing.md explains each.
 *
 * <p>{@code messageId} is made if it is absent. {@code receipt} and {@code copies} default to
 * the publisher's {@link Settings}.
 */
public final class Options {
  final Map<String, Object> headers = new HashMap<>();
  String messageId;
  String type;
  String expiration;
  Boolean receipt;
  Integer copies;

  /** Groups the versions of one story. */
  public Options key(String key) { headers.put("key", key); return this; }

  /** Of two versions with one key the higher is the newer. */
  public Options version(long version) { headers.put("version", version); return this; }

  /** W3C Trace Context. */
  public Options traceparent(String traceparent) { headers.put("traceparent", traceparent); return this; }

  /** The idempotency key. */
  public Options messageId(String messageId) { this.messageId = messageId; return this; }

  /** Free text for people. */
  public Options type(String type) { this.type = type; return this; }

  /** Milliseconds after which the message has no value any more. */
  public Options expiration(long milliseconds) { this.expiration = Long.toString(milliseconds); return this; }

  /** True: wait for a receipt; false: for a broker's confirm only. */
  public Options receipt(boolean receipt) { this.receipt = receipt; return this; }

  /** The number of regions that get it at once. */
  public Options copies(int copies) { this.copies = copies; return this; }
}
