// Publishes one message and waits until the fabric has it: with amqp091-go, and with no library of ours.
//
//	go run . amqp://guest:guest@127.0.0.1:18110/%2F cms news.breaking '{"headline":"Hello from Go"}'
//
// Prints the receipt. Exit code 0: stored and routed; 1: rejected, or no answer within 30 s.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func main() {
	url, appID, topic, body := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	receipt, err := publish(url, appID, topic, body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(receipt))
	var reply struct {
		Status string `json:"status"`
	}
	if err := json.Unmarshal(receipt, &reply); err != nil || reply.Status != "routed" {
		os.Exit(1)
	}
}

func publish(url, appID, topic, body string) ([]byte, error) {
	connection, err := amqp.Dial(url)
	if err != nil {
		return nil, err
	}
	// A broker that is silent doesn't say goodbye.
	defer func() { _ = connection.CloseDeadline(time.Now().Add(time.Second)) }()
	channel, err := connection.Channel()
	if err != nil {
		return nil, err
	}
	// The broker gives the queue its name, and deletes it with the connection.
	queue, err := channel.QueueDeclare("", false, false, true, false, nil)
	if err != nil {
		return nil, err
	}
	receipts, err := channel.Consume(queue.Name, "", true, true, false, false, nil)
	if err != nil {
		return nil, err
	}
	if err := channel.Confirm(false); err != nil {
		return nil, err
	}
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	messageID := fmt.Sprintf("%x", random[:16])
	message := amqp.Publishing{
		ContentType: "application/json",
		MessageId:   messageID,
		AppId:       appID,
		// A secret: whoever can guess it could answer for a router.
		CorrelationId: fmt.Sprintf("%x", random[16:]),
		ReplyTo:       queue.Name,
		Body:          []byte(body),
	}
	// While there is no receipt, the same again with the same message_id: readers get it once.
	for wait := 500 * time.Millisecond; wait < 20*time.Second; wait *= 2 {
		receipt, err := once(channel, topic, message, receipts, wait)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("no confirm within 10 s: send it again later, with message_id %s", messageID)
		}
		if receipt != nil || err != nil {
			return receipt, err
		}
	}
	return nil, fmt.Errorf("no receipt: send it again later, with message_id %s", messageID)
}

// once sends message and waits for its receipt: nil if none comes.
func once(
	channel *amqp.Channel, topic string, message amqp.Publishing, receipts <-chan amqp.Delivery, wait time.Duration,
) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	confirm, err := channel.PublishWithDeferredConfirmWithContext(ctx, "publish", topic, true, false, message)
	if err != nil {
		return nil, err
	}
	taken, err := confirm.WaitContext(ctx)
	if err != nil {
		return nil, err
	}
	if !taken {
		time.Sleep(wait)
		return nil, nil
	}
	for late := time.After(wait); ; {
		select {
		case receipt, open := <-receipts:
			if !open {
				return nil, amqp.ErrClosed
			}
			// A receipt of another message, or a second one of this: the queue is the connection's.
			if receipt.CorrelationId == message.CorrelationId {
				return receipt.Body, nil
			}
		case <-late:
			return nil, nil
		}
	}
}
