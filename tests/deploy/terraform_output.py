"""An example of ``terraform output -json settings``, which Ansible reads."""

from __future__ import annotations

from typing import Any, Final

SETTINGS: Final[dict[str, Any]] = {
    "newsfabric_networks": ["10.10.0.0/16", "10.11.0.0/16"],
    "newsfabric_gateways_at": ["readers.oregon.news.example.com"],
    "newsfabric_proxy_from": ["10.1.0.0/20", "10.1.16.0/20"],
    "newsfabric_scaler_options": {
        "oregon": ["--driver", "aws", "--group", "newsfabric-oregon-retail", "--per-box", "50000"],
        "dublin": ["--driver", "aws", "--group", "newsfabric-dublin-retail", "--per-box", "50000"],
    },
    "newsfabric_admission": {
        region: {
            "group": f"newsfabric-{region}-retail",
            "secrets": {
                "tls": f"newsfabric-{region}/tls/retail",
                "store": f"newsfabric-{region}/store/reader",
                "boxes": f"newsfabric-{region}/box/",
            },
            "aws_region": aws_region,
            "account": "123456789012",
            "partition": "aws",
            "key": f"arn:aws:kms:{aws_region}:123456789012:key/{region}",
        }
        for region, aws_region in (("oregon", "us-west-2"), ("dublin", "eu-west-1"))
    },
}
ADMISSION: Final[dict[str, Any]] = {"newsfabric_admission": SETTINGS["newsfabric_admission"]}
