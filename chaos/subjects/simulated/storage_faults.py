"""What the faults of storage do to a simulated run; the evidence is what a request met, or what a file holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from shaketable.chaos.faults.damage_checkpoint import DamageCheckpoint, damaged
from shaketable.chaos.faults.hurt_storage import HurtStorage, told
from shaketable.chaos.faults.storage.rules import Rule, Struck
from shaketable.chaos.subjects.simulated.injection import Injection


@dataclass
class HurtStorageInjection(Injection):
    name = "hurt_storage"
    struck: Struck | None = None

    def inject(self) -> None:
        assert isinstance(self.fault, HurtStorage)
        self.struck = Struck(self.fault.rule)
        self.run.world.records.hurt.struck.append(self.struck)

    def observe(self) -> str | None:
        return told(self.struck)

    def heal(self) -> None:
        rules = self.run.world.records.hurt.struck
        rules[:] = [struck for struck in rules if struck is not self.struck]


@dataclass
class RefusesWrites(Injection):
    """Nothing new is taken; what is there can be read and deleted."""

    struck: Struck = field(default_factory=lambda: Struck(Rule("internal_error", ("PUT",))))

    def inject(self) -> None:
        self.run.world.records.hurt.struck.append(self.struck)

    def observe(self) -> str | None:
        return f"{self.struck.hits[0]} refused" if self.struck.done else None

    def heal(self) -> None:
        rules = self.run.world.records.hurt.struck
        rules[:] = [struck for struck in rules if struck is not self.struck]


class FillDiskInjection(RefusesWrites):
    name = "fill_disk"


class DenyWritesInjection(RefusesWrites):
    name = "deny_writes"


@dataclass
class LoseLogInjection(Injection):
    name = "lose_log"
    away: dict[int, bytes] = field(default_factory=dict)

    def inject(self) -> None:
        stored = self.run.world.records.stored
        self.away = dict(stored)
        stored.clear()

    def observe(self) -> str | None:
        stored = self.run.world.records.stored
        back = any(stored.get(number) == data for number, data in self.away.items())
        return f"{len(self.away)} records are gone" if self.away and not back else None

    def heal(self) -> None:
        stored = self.run.world.records.stored
        stored.clear()
        stored.update(self.away)


@dataclass
class DamageCheckpointInjection(Injection):
    name = "damage_checkpoint"
    before: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def inject(self) -> None:
        assert isinstance(self.fault, DamageCheckpoint)
        names = self.run.commits()
        for name in names[-1:] if self.fault.which == "latest" else names:
            files = self.run.world.checkpoints.files.get(name, {})
            if not files:
                continue  # all of it had been deleted
            path = min(files)
            self.before[name, path] = data = files[path]
            if self.fault.how == "delete":
                del files[path]
            else:
                files[path] = damaged(data) if self.fault.how == "corrupt" else data[: len(data) // 2]

    def observe(self) -> str | None:
        stored = self.run.world.checkpoints.files
        same = [at for at, data in self.before.items() if stored.get(at[0], {}).get(at[1]) == data]
        return f"{len(self.before)} files differ" if self.before and not same else None
