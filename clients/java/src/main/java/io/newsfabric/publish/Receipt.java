package io.newsfabric.publish;

import java.util.HashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Reads receipts: flat JSON objects of texts, true and false. So no JSON library is needed. */
final class Receipt {
  private static final Pattern FIELD =
      Pattern.compile("\"(\\w+)\"\\s*:\\s*(?:\"((?:[^\"\\\\]|\\\\.)*+)\"|(true|false))");
  private static final Pattern ESCAPE = Pattern.compile("\\\\(?:u([0-9a-fA-F]{4})|(.))");
  private static final Map<String, String> ESCAPED =
      Map.of("n", "\n", "t", "\t", "r", "\r", "b", "\b", "f", "\f");

  private Receipt() {}

  static Map<String, String> fields(String json) {
    Map<String, String> found = new HashMap<>();
    Matcher field = FIELD.matcher(json);
    while (field.find()) {
      found.put(field.group(1), field.group(3) != null ? field.group(3) : unescape(field.group(2)));
    }
    return found;
  }

  static Published published(String messageId, Map<String, String> receipt) {
    return new Published(
        messageId,
        true,
        receipt.get("id"),
        receipt.get("identity"),
        receipt.get("region"),
        receipt.get("router"),
        "true".equals(receipt.get("repeated")));
  }

  private static String unescape(String text) {
    return ESCAPE
        .matcher(text)
        .replaceAll(
            escape ->
                Matcher.quoteReplacement(
                    escape.group(1) != null
                        ? String.valueOf((char) Integer.parseInt(escape.group(1), 16))
                        : ESCAPED.getOrDefault(escape.group(2), escape.group(2))));
  }
}
