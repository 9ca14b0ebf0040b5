"""The pure half of learner tasks: who has which task, who learns which. Experimental.

A stateful task moves only when the state has been learned where it goes (the draft of KIP-429,
KIP-441). Two functions decide: an *assignor* computes where each task is to be in the end, a
*refiner* what of it may be granted now and who learns what meanwhile. All that they need comes
with the members' user data, so that any member can lead. docs/streams-rules.md has the rules.

| module | what it has |
|---|---|
| `tasks` | tasks, and the partitions that each reads |
| `settings` | what a group agrees on |
| `situation` | who has what when a rebalance begins |
| `target` | the assignor |
| `refiner` | the refiner |
| `standbys` | standby replicas |
| `metadata` | what travels in user data |
| `plan` | all of it, from subscriptions to assignments |
| `leader`, `member` | the two machines around it |
"""
