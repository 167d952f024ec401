# Publishes one message and waits until the fabric has it: with bunny, and with no library of ours.
#
#   apt-get install ruby-bunny    (or: gem install bunny)
#   ruby publish.rb amqp://guest:guest@127.0.0.1:18110/%2F cms news.breaking '{"headline":"Hello from Ruby"}'
#
# Prints the receipt. Exit code 0: stored and routed; 1: rejected, or no answer within 30 s.
require "bunny"
require "json"
require "securerandom"

url, app_id, topic, body = ARGV
message_id = SecureRandom.uuid
# Receipts are known by it: whoever can guess it could answer for a router.
secret = SecureRandom.uuid
# How long the broker may take over each answer, in ms.
connection = Bunny.new(url, continuation_timeout: 10_000)
connection.start
channel = connection.create_channel
channel.confirm_select
# The broker gives the queue its name, and deletes it with the connection.
queue = channel.queue("", exclusive: true)
receipts = Queue.new
queue.subscribe do |_delivery, properties, receipt|
  # A receipt of another message, or a second one of this: the queue is the connection's.
  receipts << receipt if properties.correlation_id == secret
end

# Ends, not knowing what became of the message. It says no goodbye: a broker that is silent wouldn't answer.
give_up = lambda do |why|
  warn "#{why}: send it again later, with message_id #{message_id}"
  exit! 1
end

receipt = nil
wait = 0.5
# While there is no receipt, the same again with the same message_id: readers get it once.
while receipt.nil? && wait < 20
  channel.basic_publish(
    body, "publish", topic,
    content_type: "application/json", message_id: message_id, app_id: app_id,
    correlation_id: secret, reply_to: queue.name, mandatory: true
  )
  begin
    channel.wait_for_confirms
  rescue Timeout::Error
    give_up.call("no confirm within 10 s")
  end
  late = Time.now + wait
  sleep 0.01 while receipts.empty? && Time.now < late
  receipt = receipts.pop unless receipts.empty?
  wait *= 2
end
give_up.call("no receipt") if receipt.nil?
connection.close
puts receipt
exit JSON.parse(receipt)["status"] == "routed"
