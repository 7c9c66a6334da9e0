"""The shape of the database, the same on SQLite and PostgreSQL; `alembic/` makes it and a test compares.

Documents (specs, metrics, forecasts, directives) are JSON as text in the wire's encoding, not a JSON type:
neither SQLite's nor PostgreSQL's JSON can hold NaN or an infinity, and a metric must come back as it came.
For the same reason `reward` is among the metrics: SQLite turns a NaN in a REAL column into NULL.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# SQLite only counts up an INTEGER PRIMARY KEY by itself; PostgreSQL wants the wide type.
BigId = BigInteger().with_variant(Integer(), "sqlite")


class Base(DeclarativeBase):
    """Named constraints, so that a later migration can find them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Run(Base):
    """One training job. `state` is never `lost`: that is read from `heard_at` and `heartbeat_seconds`.

    `step`, `samples`, `rollout_batch` and `learning_rate` are those of the last live report; `generation` is
    the latest directive's; `revision` grows with every change and is what event streams and long polls watch.
    """

    __tablename__ = "runs"
    __table_args__ = (Index(None, "project", "id"), Index(None, "family"))

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(String(128), unique=True)
    project: Mapped[str] = mapped_column(String(128))
    family: Mapped[str] = mapped_column(Text)
    spec: Mapped[str] = mapped_column(Text)
    attempt: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(16))
    heartbeat_seconds: Mapped[float] = mapped_column(Float(53))
    created_at: Mapped[float] = mapped_column(Float(53))
    heard_at: Mapped[float] = mapped_column(Float(53))
    last_report_at: Mapped[float | None] = mapped_column(Float(53))
    ended_at: Mapped[float | None] = mapped_column(Float(53))
    end_reason: Mapped[str | None] = mapped_column(Text)
    reports: Mapped[int] = mapped_column(BigInteger, default=0)
    step: Mapped[int | None] = mapped_column(BigInteger)
    samples: Mapped[int] = mapped_column(BigInteger, default=0)
    rollout_batch: Mapped[int | None] = mapped_column(BigInteger)
    learning_rate: Mapped[float | None] = mapped_column(Float(53))
    generation: Mapped[int] = mapped_column(Integer, default=0)
    revision: Mapped[int] = mapped_column(BigInteger, default=1)


class Attempt(Base):
    """One start of the run's process, with the spec its reports are folded under.

    The live path of a run is, for each attempt, its reports below `live_until`: the least first step of any
    later attempt (null: no later attempt has reported). What lies beyond is history.
    """

    __tablename__ = "attempts"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    spec: Mapped[str] = mapped_column(Text)
    started_at: Mapped[float] = mapped_column(Float(53))
    ended_at: Mapped[float | None] = mapped_column(Float(53))
    first_step: Mapped[int | None] = mapped_column(BigInteger)
    last_step: Mapped[int | None] = mapped_column(BigInteger)
    live_until: Mapped[int | None] = mapped_column(BigInteger)


class Step(Base):
    """One report. The primary key is the idempotency key: the same (run, attempt, step) is stored once."""

    __tablename__ = "steps"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    step: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    samples: Mapped[int] = mapped_column(BigInteger)
    rollout_batch: Mapped[int] = mapped_column(BigInteger)
    learning_rate: Mapped[float] = mapped_column(Float(53))
    updates: Mapped[int] = mapped_column(BigInteger)
    epochs: Mapped[int] = mapped_column(BigInteger)
    time: Mapped[float | None] = mapped_column(Float(53))
    metrics: Mapped[str] = mapped_column(Text)


class ClockState(Base):
    """The folded state of a run's clocks up to (attempt, step); a cache of its live reports, never more.

    `forecast_id` and `forecast_samples` are the latest forecast and where it was made; `collapsed` says
    whether the state shows an onset.
    """

    __tablename__ = "clock_states"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    state: Mapped[str] = mapped_column(Text)
    attempt: Mapped[int] = mapped_column(BigInteger)
    step: Mapped[int] = mapped_column(BigInteger)
    forecast_id: Mapped[int | None] = mapped_column(BigInteger)
    forecast_samples: Mapped[int | None] = mapped_column(BigInteger)
    collapsed: Mapped[bool] = mapped_column(Boolean, default=False)


class Forecast(Base):
    """A forecast as made, kept for ever; the latest one of a run is the one that is shown everywhere."""

    __tablename__ = "forecasts"
    __table_args__ = (Index(None, "run_id", "id"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    attempt: Mapped[int] = mapped_column(BigInteger)
    samples: Mapped[int] = mapped_column(BigInteger)
    made_at: Mapped[float] = mapped_column(Float(53))
    document: Mapped[str] = mapped_column(Text)


class Directive(Base):
    """A directive as issued; `complied_at_step` is the first live report that shows its setting."""

    __tablename__ = "directives"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    generation: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    document: Mapped[str] = mapped_column(Text)
    complied_at_step: Mapped[int | None] = mapped_column(BigInteger)


class Ack(Base):
    """What a trainer said of a directive; at most one of each state for an attempt."""

    __tablename__ = "acks"
    __table_args__ = (UniqueConstraint("run_id", "generation", "attempt", "state"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    generation: Mapped[int] = mapped_column(Integer)
    attempt: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(16))
    document: Mapped[str] = mapped_column(Text)


class Member(Base):
    """The evidence an ended or collapsed path of a run gives its family.

    Keyed by attempt: a collapse that was rewound did happen, and stays beside what came of the rewind.
    """

    __tablename__ = "members"
    __table_args__ = (Index(None, "family"),)

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    family: Mapped[str] = mapped_column(Text)
    collapsed: Mapped[bool] = mapped_column(Boolean)
    samples: Mapped[int] = mapped_column(BigInteger)
    document: Mapped[str] = mapped_column(Text)
