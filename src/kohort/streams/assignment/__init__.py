"""The pure half of learner tasks: which member runs or learns which task. Experimental.

A stateful task moves only after its new member has learned the state (the draft of KIP-429,
KIP-441). Two functions decide: an *assignor* computes the final place of each task, a *refiner*
decides which tasks to grant now and which member learns which task meanwhile. All their input is in
the members' user data, so any member can lead. docs/internals/streams-rules.md lists the rules.

| module | content |
|---|---|
| `tasks` | tasks, and the partitions that each reads |
| `settings` | settings that the group shares |
| `situation` | which member has which tasks when a rebalance begins |
| `target` | the assignor |
| `refiner` | the refiner |
| `standbys` | standby replicas |
| `metadata` | the encoding of user data |
| `plan` | the whole plan, from subscriptions to assignments |
| `leader`, `member` | the two machines that use it |
"""
