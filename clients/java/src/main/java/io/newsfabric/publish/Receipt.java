package io.newsfabric.publish;

import java.util.HashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Reads receipts: flat JSON objects of texts, true and false. So no JSON library is needed. */
final class Receipt {
  private static final Pattern FIELD =
      Pattern.compile("\"(\\w+)\"\\s*:\\s*(?:\"((?:[^\"\\\\]|\\\\.)*+)\"|(true|false))");
  private static final Pattern ESCAPE = Pattern.compile("\\\\(?:u(\\p{XDigit}{4})|(.))");
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

  private static String unescape(String text) {
    return ESCAPE.matcher(text).replaceAll(escape -> {
      String code = escape.group(1);
      String character = code == null
          ? ESCAPED.getOrDefault(escape.group(2), escape.group(2))
          : Character.toString(Integer.parseInt(code, 16));
      return Matcher.quoteReplacement(character);
    });
  }
}
