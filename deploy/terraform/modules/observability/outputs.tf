output "topic_arn" {
  description = "The topic of alarms."
  value       = aws_sns_topic.alarms.arn
}
