package io.newsfabric.publish;

import java.util.Arrays;

/** Publishes one headline and prints its id: {@code mvn -q compile test-compile exec:java -Dexec.args="REGION …"}. */
public final class Example {
  private Example() {}

  /** Regions, nearest first; each the AMQP URLs of its client cluster with commas between them. */
  public static void main(String[] regions) {
    try (Publisher publisher = new Publisher(Arrays.asList(regions), new Settings("cms"))) {
      Published published =
          publisher.publish(
              "news.breaking",
              "{\"headline\": \"Comet seen over the bay\"}",
              new Options().key("comet").version(1));
      System.out.println(published.identity());
    } catch (PublishException.Rejected e) {
      System.err.println("it can't be accepted: " + e.getMessage());
      System.exit(1);
    }
  }
}
