"""The test that makes the fault of each alert really happen, by file. Pure data.

tests/test_observability.py compares this table with deploy/observability/rules/alerts.yml, so that
an alert without a fault fails.
"""

from __future__ import annotations

from typing import Final

_WATCHES: Final = "tests/e2e/test_a_prometheus_watches.py"
_FIRES: Final = "tests/e2e/test_each_alert_fires.py"

#: Alert → the file and the name of its test.
MADE_IN: Final[dict[str, tuple[str, str]]] = {
    "NewsfabricProcessDown": (_WATCHES, "test_a_region_whose_gateway_is_dead_has_no_box"),
    "NewsfabricRegionWithoutBox": (_WATCHES, "test_a_region_whose_gateway_is_dead_has_no_box"),
    "NewsfabricRegionWithoutRouter": (
        _WATCHES,
        "test_one_dead_router_is_a_process_and_both_are_a_region",
    ),
    "NewsfabricShovelSilent": (_WATCHES, "test_shovels_of_a_broker_that_stands_still_are_silent"),
    "NewsfabricRegionCut": (_WATCHES, "test_regions_that_are_cut_apart_are_told_in_both"),
    "NewsfabricStoreAway": (_WATCHES, "test_a_store_that_takes_nothing_is_away"),
    "NewsfabricProcessNotReady": (_FIRES, "test_a_box_that_cannot_read_the_store"),
    "NewsfabricStoreReadsFail": (_FIRES, "test_a_box_that_cannot_read_the_store"),
    "NewsfabricFleetNearlyFull": (_FIRES, "test_a_box_at_its_limits"),
    "NewsfabricReadersTurnedAway": (_FIRES, "test_a_box_at_its_limits"),
    "NewsfabricReadersLost": (_FIRES, "test_a_box_at_its_limits"),
    "NewsfabricSlowReaders": (_FIRES, "test_a_box_at_its_limits"),
    "NewsfabricIdentitiesEvicted": (_FIRES, "test_a_box_at_its_limits"),
    "NewsfabricOutOfDescriptors": (_FIRES, "test_a_box_at_its_limits"),
    "NewsfabricRouterBehind": (_FIRES, "test_a_store_that_takes_nothing_for_long"),
    "NewsfabricMailboxBehind": (_FIRES, "test_a_store_that_takes_nothing_for_long"),
    "NewsfabricMessagesShed": (_FIRES, "test_a_store_that_takes_nothing_for_long"),
    "NewsfabricMessagesExpired": (_FIRES, "test_a_store_that_takes_nothing_for_long"),
    "NewsfabricHolesOpen": (_FIRES, "test_numbers_that_no_store_has"),
    "NewsfabricNumbersMissing": (_FIRES, "test_numbers_that_no_store_has"),
    "NewsfabricLogUnlisted": (_FIRES, "test_numbers_that_no_store_has"),
    "NewsfabricTimesDisbelieved": (_FIRES, "test_numbers_that_no_store_has"),
    "NewsfabricMessagesRejected": (_FIRES, "test_what_a_region_is_told_wrongly"),
    "NewsfabricForgedReports": (_FIRES, "test_what_a_region_is_told_wrongly"),
    "NewsfabricDeliveryFailed": (_FIRES, "test_what_a_region_is_told_wrongly"),
    "NewsfabricScalerLimited": (_FIRES, "test_what_a_region_is_told_wrongly"),
    "NewsfabricScalerDriverFails": (_FIRES, "test_what_a_region_is_told_wrongly"),
    "NewsfabricCertificateExpires": (_FIRES, "test_an_authority_that_ends_tomorrow"),
    "NewsfabricCertificateExpiresSoon": (_FIRES, "test_an_authority_that_ends_tomorrow"),
    "NewsfabricShovelRestarts": (_FIRES, "test_a_shovel_whose_messages_somebody_else_takes"),
    "NewsfabricFeedSilent": (_FIRES, "test_brokers_that_are_away"),
    "NewsfabricDelayHigh": (_FIRES, "test_gold_that_was_held_up"),
    "NewsfabricBrokerAlarm": (_FIRES, "test_a_broker_without_room"),
    "NewsfabricShovelsMissing": (_FIRES, "test_brokers_that_are_away"),
}

#: Alert → the reason why one machine can't make its fault; also in deploy/observability/README.md.
NOT_MADE: Final[dict[str, str]] = {
    "NewsfabricClockApart": "all processes of one machine have its clock"
    " (tests/wholesale/router/test_clock_watch.py)",
    "NewsfabricBrokerQueues": "5,000 queues take a broker several minutes"
    " (tests/shovels/test_nodes.py)",
    "NewsfabricBrokerSkipped": "the world has one core broker a region, and only one of several"
    " is skipped (tests/wholesale/router/test_on_two_brokers.py)",
}
