"""Single checks of role ``precheck``, as tasks that fail where an error is found."""

from __future__ import annotations

from typing import Any, Final

import yaml

from tests.deploy.unit_templates import ROLES

PRECHECK: Final = ROLES / "precheck"
_TABLE: Final = PRECHECK / "vars" / "main.yml"


def checks(*names: str) -> list[dict[str, Any]]:
    """Return tasks that run the checks ``names`` of the table."""
    table = yaml.safe_load(_TABLE.read_text())
    kinds = ("precheck_fabric_checks", "precheck_host_checks")
    found = [{"ansible.builtin.include_vars": {"file": str(_TABLE)}}]
    for name in names:
        [kind] = [each for each in kinds if name in table[each]]
        text = f"{{{{ {kind}[{name!r}] | default('', true) | trim }}}}"
        fields = {"that": "fault == ''", "fail_msg": "{{ fault }}"}
        found.append({"name": name, "ansible.builtin.assert": fields, "vars": {"fault": text}})
    return found
