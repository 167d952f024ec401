package io.newsfabric.publish;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Map;
import org.junit.jupiter.api.Test;

class ReceiptTest {
  @Test
  void textsAndFlagsAreRead() {
    assertEquals(
        Map.of("status", "routed", "id", "01a1", "repeated", "true"),
        Receipt.fields("{\"status\":\"routed\",\"id\":\"01a1\",\"message_id\":null,\"repeated\":true}"));
  }

  @Test
  void escapesAreUndone() {
    String json = "{\"detail\": \"a \\\"quote\\\", a \\\\ and \\u00e9\\n\", \"status\": \"rejected\"}";
    assertEquals(
        Map.of("detail", "a \"quote\", a \\ and é\n", "status", "rejected"), Receipt.fields(json));
  }

  @Test
  void aTextThatLooksLikeAFieldIsAText() {
    assertEquals(
        Map.of("detail", "\"status\":\"routed\"", "status", "rejected"),
        Receipt.fields("{\"detail\":\"\\\"status\\\":\\\"routed\\\"\",\"status\":\"rejected\"}"));
  }

  @Test
  void anythingElseHasNoFields() {
    assertEquals(Map.of(), Receipt.fields("[1, \"x\"]"));
  }
}
