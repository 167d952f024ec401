"""Publish one message as any AMQP program can: with pika, and with no library of ours.

python examples/publish.py amqp://guest:guest@127.0.0.1:5672/ news.breaking '{"headline":"…"}'
"""

import sys

import pika

url, topic, body = sys.argv[1:]
properties = pika.BasicProperties(content_type="application/json", delivery_mode=1)
with pika.BlockingConnection(pika.URLParameters(url)) as connection:
    channel = connection.channel()
    channel.confirm_delivery()  # basic_publish now raises unless the broker took the message
    channel.basic_publish("publish", topic, body.encode(), properties)
print(f"taken by the broker, for {topic}")
