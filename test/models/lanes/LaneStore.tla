----------------------------- MODULE LaneStore -----------------------------
(* What the operations of the queue do with one delivery (src/provider/queue/sql). Each is atomic.                        *)
(* Times are relative: 0 is now or earlier, 1 is later.                                                                   *)
EXTENDS Naturals

CONSTANT Mutation \* "none", or a deliberate defect that a check must notice.

Never == 99
Later(time) == IF time = 1 THEN 0 ELSE time

\* `attempt`: attempts made so far. `tries`: since the last replay.
NoDelivery == [state |-> "absent", attempt |-> 0, tries |-> 0, due |-> Never]
Appended == [NoDelivery EXCEPT !.state = "waiting", !.due = 0]

\* One that waits keeps its place in the schedule.
Retried(delivery) ==
  CASE delivery.state = "absent" -> delivery
    [] delivery.state = "waiting" -> [delivery EXCEPT !.due = 0]
    [] OTHER -> [delivery EXCEPT !.state = "waiting", !.tries = 0, !.due = 0]

Canceled(delivery) == IF delivery.state = "waiting" THEN [delivery EXCEPT !.state = "skipped", !.due = Never] ELSE delivery

Ended(delivery, state, made) ==
  [delivery EXCEPT !.state = state, !.attempt = @ + made, !.tries = @ + made, !.due = Never]

Apply(delivery, kind) ==
  CASE kind = "delivered" -> Ended(delivery, "delivered", 1)
    [] kind = "dead" -> Ended(delivery, "dead", 1)
    [] kind = "skipped" -> Ended(delivery, "skipped", 0)
    [] kind = "retry" -> [delivery EXCEPT !.attempt = @ + 1, !.tries = @ + 1, !.due = 1]
    [] kind = "postponed" -> [delivery EXCEPT !.due = 0]

\* The number of the attempt is the fence. A 2xx counts, too, if the delivery was skipped meanwhile.
IsCurrent(delivery, attempt, kind) ==
  /\ delivery.attempt = attempt
  /\ delivery.state = "waiting" \/ (delivery.state = "skipped" /\ kind = "delivered")

\* Only the owner of the lane decides what happens next, but a 2xx is a fact.
IsApplied(delivery, isOwner, attempt, kind) ==
  \/ /\ IsCurrent(delivery, attempt, kind)
     /\ isOwner \/ kind = "delivered" \/ Mutation = "settlement without the lane"
  \/ Mutation = "settlement without the fence" /\ delivery.state # "absent"

Settled(delivery, isOwner, attempt, kind) ==
  IF IsApplied(delivery, isOwner, attempt, kind) THEN Apply(delivery, kind) ELSE delivery
=============================================================================
