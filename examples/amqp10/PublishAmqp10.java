import com.rabbitmq.client.amqp.Message;
import com.rabbitmq.client.amqp.Publisher;
import com.rabbitmq.client.amqp.impl.AmqpEnvironmentBuilder;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Publishes one message over AMQP 1.0 and prints the receipt. RabbitMQ 4.0 and later.
 *
 * <pre>mvn -q compile exec:java -Dexec.args="amqp://guest:guest@127.0.0.1:18110/%2F cms news.breaking '{}'"</pre>
 */
public final class PublishAmqp10 {
  public static void main(String[] arguments) throws Exception {
    String appId = arguments[1];
    String queue = appId + ".receipts." + UUID.randomUUID();
    // Receipts are known by it: whoever can guess it could answer for a router.
    String secret = UUID.randomUUID().toString();
    var receipt = new CompletableFuture<String>();
    try (var environment = new AmqpEnvironmentBuilder().build();
        var connection = environment.connectionBuilder().uri(arguments[0]).build()) {
      var management = connection.management();
      management.queue(queue).exclusive(true).autoDelete(true).declare();
      connection
          .consumerBuilder()
          .queue(queue)
          .messageHandler(
              (context, message) -> {
                context.accept();
                if (secret.equals(message.correlationId())) {
                  receipt.complete(new String(message.body(), StandardCharsets.UTF_8));
                }
              })
          .build();
      Publisher publisher =
          connection.publisherBuilder().exchange("publish").key(arguments[2]).build();
      Message message =
          publisher
              .message(arguments[3].getBytes(StandardCharsets.UTF_8))
              .messageId(UUID.randomUUID().toString())
              .groupId(appId) // what AMQP 0-9-1 calls app_id
              .replyTo(queue)
              .correlationId(secret)
              .contentType("application/json");
      publisher.publish(
          message,
          context -> {
            if (context.status() != Publisher.Status.ACCEPTED) {
              receipt.completeExceptionally(
                  new IllegalStateException("the broker says " + context.status()));
            }
          });
      System.out.println(receipt.get(30, TimeUnit.SECONDS));
    }
  }
}
