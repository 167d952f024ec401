package io.newsfabric.publish;

import com.rabbitmq.tools.json.JSONReader;
import com.rabbitmq.tools.json.JSONWriter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/** The program that tests/clients runs; tests/clients/driver.py describes it. */
@SuppressWarnings("deprecation") // JSONReader: good enough for a test
public final class Driver {
  private static final String BODY =
      "{\"headline\": \"Comet seen over the bay\", \"padding\": \"" + "x".repeat(46) + "\"}";

  private Driver() {}

  public static void main(String[] arguments) throws Exception {
    long began = System.nanoTime();
    Map<?, ?> given = read(arguments[0]);
    List<Map<?, ?>> lines = new ArrayList<>();
    var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = input.readLine()) != null; ) {
      lines.add(read(line));
    }
    List<String> regions = ((List<?>) given.get("regions")).stream().map(String.class::cast).toList();
    try (Publisher publisher = new Publisher(regions, settings(given))) {
      List<List<CompletableFuture<Published>>> sent = new ArrayList<>();
      for (Map<?, ?> line : lines) {
        sent.add(send(publisher, line));
      }
      for (int n = 0; n < lines.size(); n++) {
        List<Map<String, Object>> outcomes = sent.get(n).stream().map(Driver::outcome).toList();
        Map<String, Object> outcome = outcomes.get(0);
        if (lines.get(n).containsKey("many")) {
          long failed = outcomes.stream().filter(each -> each.containsKey("error")).count();
          outcome = Map.of("seconds", (System.nanoTime() - began) / 1e9, "failed", failed);
        }
        System.out.println(new JSONWriter().write(outcome));
      }
    }
  }

  private static List<CompletableFuture<Published>> send(Publisher publisher, Map<?, ?> line) {
    byte[] body = (line.get("body") instanceof String given ? given : BODY).getBytes(StandardCharsets.UTF_8);
    int count = line.get("many") instanceof Number many ? many.intValue() : 1;
    List<CompletableFuture<Published>> sent = new ArrayList<>();
    for (int n = 0; n < count; n++) {
      try {
        sent.add(publisher.send((String) line.get("topic"), body, options((Map<?, ?>) line.get("options"))));
      } catch (IllegalArgumentException e) {
        sent.add(CompletableFuture.failedFuture(e));
      }
    }
    return sent;
  }

  private static Map<String, Object> outcome(CompletableFuture<Published> future) {
    Map<String, Object> outcome = new LinkedHashMap<>();
    try {
      Published published = future.join();
      Map<String, Object> fields = new LinkedHashMap<>();
      fields.put("message_id", published.messageId());
      fields.put("routed", published.routed());
      fields.put("id", published.id());
      fields.put("identity", published.identity());
      fields.put("region", published.region());
      fields.put("router", published.router());
      fields.put("repeated", published.repeated());
      outcome.put("published", fields);
    } catch (CompletionException e) {
      boolean argument = e.getCause() instanceof IllegalArgumentException;
      outcome.put("error", argument ? "argument" : e.getCause().getClass().getSimpleName());
      if (e.getCause() instanceof PublishException.Rejected rejected) {
        outcome.put("reason", rejected.reason());
      } else if (e.getCause() instanceof PublishException.AccessRefused refused) {
        outcome.put("text", refused.getMessage());
      } else if (e.getCause() instanceof PublishException.Unanswered unanswered) {
        outcome.put("message_id", unanswered.messageId());
        outcome.put("sent", unanswered.sent());
      }
    }
    return outcome;
  }

  private static Settings settings(Map<?, ?> given) {
    Settings settings = new Settings((String) given.get("app_id"));
    given.forEach(
        (name, value) -> {
          switch ((String) name) {
            case "receipt" -> settings.receipt((Boolean) value);
            case "copies" -> settings.copies(((Number) value).intValue());
            case "timeout" -> settings.timeout(seconds(value));
            case "window" -> settings.window(((Number) value).intValue());
            case "send_again" -> settings.sendAgain(seconds(value));
            default -> { }
          }
        });
    return settings;
  }

  private static Options options(Map<?, ?> given) {
    Options options = new Options();
    if (given != null) {
      given.forEach(
          (name, value) -> {
            switch ((String) name) {
              case "key" -> options.key((String) value);
              case "version" -> options.version(((Number) value).longValue());
              case "message_id" -> options.messageId((String) value);
              case "type" -> options.type((String) value);
              case "expiration" -> options.expiration(((Number) value).longValue());
              case "traceparent" -> options.traceparent((String) value);
              case "receipt" -> options.receipt((Boolean) value);
              case "copies" -> options.copies(((Number) value).intValue());
              default -> throw new IllegalArgumentException((String) name);
            }
          });
    }
    return options;
  }

  private static Duration seconds(Object value) {
    return Duration.ofMillis((long) (((Number) value).doubleValue() * 1000));
  }

  private static Map<?, ?> read(String json) {
    return (Map<?, ?>) new JSONReader().read(json);
  }
}
