"""The log on Kafka: production's driver.

The fence is the consumer group's generation, carried by ``send_offsets_to_transaction`` in every transaction, those of
mere timers included. What librdkafka gets wrong or leaves open is met here and nowhere else: see ``owner`` (group and
reads), ``transaction`` (commits and their doubts), ``watchdog`` (calls that never return), ``reader`` (positions past
transaction markers).
"""

from tidewheel.log.kafka.log import KafkaLog

__all__ = ["KafkaLog"]
