"""The first schema: runs, attempts, steps, clock states, forecasts, directives, acks, members.

Revision 0001, the first.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
REAL = sa.Float(precision=53)


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("project", sa.String(length=128), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("heartbeat_seconds", REAL, nullable=False),
        sa.Column("created_at", REAL, nullable=False),
        sa.Column("heard_at", REAL, nullable=False),
        sa.Column("last_report_at", REAL, nullable=True),
        sa.Column("ended_at", REAL, nullable=True),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.Column("reports", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("samples", sa.BigInteger(), nullable=False),
        sa.Column("rollout_batch", sa.BigInteger(), nullable=True),
        sa.Column("learning_rate", REAL, nullable=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("name", name=op.f("uq_runs_name")),
    )
    op.create_index(op.f("ix_runs_family"), "runs", ["family"], unique=False)
    op.create_index(op.f("ix_runs_project_id"), "runs", ["project", "id"], unique=False)

    op.create_table(
        "acks",
        sa.Column("id", ID, nullable=False),
        sa.Column("run_id", ID, nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_acks_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_acks")),
        sa.UniqueConstraint(
            "run_id", "generation", "attempt", "state", name=op.f("uq_acks_run_id_generation_attempt_state")
        ),
    )
    op.create_table(
        "attempts",
        sa.Column("run_id", ID, nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("started_at", REAL, nullable=False),
        sa.Column("ended_at", REAL, nullable=True),
        sa.Column("first_step", sa.BigInteger(), nullable=True),
        sa.Column("last_step", sa.BigInteger(), nullable=True),
        sa.Column("live_until", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_attempts_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "attempt", name=op.f("pk_attempts")),
    )
    op.create_table(
        "clock_states",
        sa.Column("run_id", ID, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("forecast_id", sa.BigInteger(), nullable=True),
        sa.Column("forecast_samples", sa.BigInteger(), nullable=True),
        sa.Column("collapsed", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_clock_states_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_clock_states")),
    )
    op.create_table(
        "directives",
        sa.Column("run_id", ID, nullable=False),
        sa.Column("generation", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("complied_at_step", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_directives_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "generation", name=op.f("pk_directives")),
    )
    op.create_table(
        "forecasts",
        sa.Column("id", ID, nullable=False),
        sa.Column("run_id", ID, nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("samples", sa.BigInteger(), nullable=False),
        sa.Column("made_at", REAL, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_forecasts_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_forecasts")),
    )
    op.create_index(op.f("ix_forecasts_run_id_id"), "forecasts", ["run_id", "id"], unique=False)

    op.create_table(
        "members",
        sa.Column("run_id", ID, nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("collapsed", sa.Boolean(), nullable=False),
        sa.Column("samples", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_members_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "attempt", name=op.f("pk_members")),
    )
    op.create_index(op.f("ix_members_family"), "members", ["family"], unique=False)

    op.create_table(
        "steps",
        sa.Column("run_id", ID, nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("samples", sa.BigInteger(), nullable=False),
        sa.Column("rollout_batch", sa.BigInteger(), nullable=False),
        sa.Column("learning_rate", REAL, nullable=False),
        sa.Column("updates", sa.BigInteger(), nullable=False),
        sa.Column("epochs", sa.BigInteger(), nullable=False),
        sa.Column("time", REAL, nullable=True),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_steps_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "attempt", "step", name=op.f("pk_steps")),
    )


def downgrade() -> None:
    op.drop_table("steps")
    op.drop_index(op.f("ix_members_family"), table_name="members")

    op.drop_table("members")
    op.drop_index(op.f("ix_forecasts_run_id_id"), table_name="forecasts")

    op.drop_table("forecasts")
    op.drop_table("directives")
    op.drop_table("clock_states")
    op.drop_table("attempts")
    op.drop_table("acks")
    op.drop_index(op.f("ix_runs_project_id"), table_name="runs")
    op.drop_index(op.f("ix_runs_family"), table_name="runs")

    op.drop_table("runs")
