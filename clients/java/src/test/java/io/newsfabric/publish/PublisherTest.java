package io.newsfabric.publish;

import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.net.ServerSocket;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The parts of a publisher that need no broker. */
@Timeout(20)
class PublisherTest {
  private final Publisher publisher =
      new Publisher(List.of("amqp://cms:secret@127.0.0.1:" + freePort()), new Settings("cms"));

  private static int freePort() {
    try (ServerSocket socket = new ServerSocket(0)) {
      return socket.getLocalPort();
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }

  @Test
  void closedTwiceItIsClosed() {
    publisher.close();
    publisher.close();
  }

  @Test
  void whoSendsAfterTheEndLearnsIt() {
    publisher.close();
    for (int n = 0; n < 2; n++) {
      assertThrows(IllegalStateException.class, () -> publisher.send("news.breaking", "{}"));
    }
  }
}
