------------------------------- MODULE Lanes -------------------------------
(* The lane protocol of the provider: how the deliveries of one endpoint are accepted, taken, attempted and settled.     *)
(* The lane is a row in PostgreSQL, which a process leases (src/provider/queue/postgres). Taking a delivery writes        *)
(* nothing; the number of the attempt is the fence of a settlement (src/provider/queue/sql/settle.ts). Each step of a     *)
(* process is separate, and other processes can take any number of steps in between.                                      *)
EXTENDS LaneStore, FiniteSets, TLC

CONSTANTS
  Events,
  Runs,        \* Processes; also their names as owners.
  MaxAttempts, \* After so many, a delivery is dead.
  MaxFaults,   \* Faults in one behaviour.
  Faults,      \* The kinds of fault that can happen.
  Standby,     \* "synchronous": an event is accepted once the standby has it. "asynchronous" otherwise.
  Listed,      \* The causes of a double that the documentation names.
  ListedOverlaps \* The causes of two attempts at once that it names.

VARIABLES
  deliveries, \* As they are in the database.
  replica,    \* What a failover keeps of them.
  lane,       \* Its owner, and whether the lease is over.
  knows,      \* Processes that know of due deliveries, by their own API, a notification or a poll.
  run,        \* The state of each process.
  isEnabled,  \* The endpoint.
  accepted,   \* Events that the API accepted with 202.
  received,   \* How often the endpoint handled each event: 0, 1, or 2 for "more than once".
  answered,   \* Events for which the endpoint sent a 2xx.
  causes,     \* For each event, the faults that can lead to a double.
  faults,
  isForeign   \* A settlement changed a delivery that had ended otherwise, or whose attempt was settled before.

vars == <<deliveries, replica, lane, knows, run, isEnabled, accepted, received, answered, causes, faults, isForeign>>

\* Owners that are no process: nobody, and a process that crashed.
Nobody == 0
Gone == 1

NoFlight == [state |-> "none", taken |-> NoDelivery]
\* owns: the process believes that it has the lane. late: why another one can have it already, or "no". nb: not before.
IdleRun == [pc |-> "idle", owns |-> FALSE, late |-> "no", nb |-> 0, flights |-> [e \in Events |-> NoFlight]]

Init ==
  /\ deliveries = [e \in Events |-> NoDelivery]
  /\ replica = deliveries
  /\ lane = [owner |-> Nobody, isOver |-> FALSE]
  /\ knows = {}
  /\ run = [r \in Runs |-> IdleRun]
  /\ isEnabled = TRUE
  /\ accepted = {}
  /\ received = [e \in Events |-> 0]
  /\ answered = {}
  /\ causes = [e \in Events |-> {}]
  /\ faults = 0
  /\ isForeign = FALSE

CanFail(kind) == kind \in Faults /\ faults < MaxFaults
Fail(kind) == CanFail(kind) /\ faults' = faults + 1
Count(n) == IF n < 2 THEN n + 1 ELSE 2
Waiting == {e \in Events : deliveries[e].state = "waiting"}
Due == {e \in Waiting : deliveries[e].due = 0}
Flights(r, states) == {e \in Events : run[r].flights[e].state \in states}
Held(set) == {e \in Events : \E r \in set : run[r].flights[e].state # "none"}
AddCauses(set, cause) == causes' = [e \in Events |-> IF e \in set THEN causes[e] \cup {cause} ELSE causes[e]]
\* Processes that lost their lease, and do not know it yet.
MakeLate(set, cause) == [r \in Runs |-> IF r \in set THEN [run[r] EXCEPT !.late = cause] ELSE run[r]]
AddLateCause(r, set) == IF run[r].late = "no" THEN UNCHANGED causes ELSE AddCauses(set, run[r].late)
Receive(set) == received' = [e \in Events |-> IF e \in set THEN Count(received[e]) ELSE received[e]]

---------------------------------------------------------------------------
(* The API, in any process. Others get a notification, or not. *)

Tell == \E set \in {Runs} \cup {{r} : r \in Runs} : knows' = knows \cup set

Accept(e) ==
  /\ deliveries[e].state = "absent" /\ e \notin accepted
  /\ deliveries' = [deliveries EXCEPT ![e] = Appended]
  /\ replica' = IF Standby = "synchronous" THEN [replica EXCEPT ![e] = Appended] ELSE replica
  /\ Tell
  /\ accepted' = accepted \cup {e}
  /\ UNCHANGED <<lane, run, isEnabled, received, answered, causes, faults, isForeign>>

ReplayDelivery(e) ==
  /\ deliveries[e].state \notin {"absent", "waiting"}
  /\ Fail("replay")
  /\ deliveries' = [deliveries EXCEPT ![e] = Retried(@)]
  /\ Tell
  /\ AddCauses({e}, "replay")
  /\ UNCHANGED <<replica, lane, run, isEnabled, accepted, received, answered, isForeign>>

Disable ==
  /\ isEnabled
  /\ Fail("disabling")
  /\ isEnabled' = FALSE
  /\ UNCHANGED <<deliveries, replica, lane, knows, run, accepted, received, answered, causes, isForeign>>

Enable ==
  /\ ~isEnabled
  /\ isEnabled' = TRUE
  /\ UNCHANGED <<deliveries, replica, lane, knows, run, accepted, received, answered, causes, faults, isForeign>>

---------------------------------------------------------------------------
(* The lease. *)

IsFree(r) == lane.owner \in {Nobody, r} \/ lane.isOver

Poll(r) ==
  /\ Mutation # "no polls"
  /\ run[r].pc = "idle" /\ r \notin knows
  /\ Due # {} /\ IsFree(r)
  /\ knows' = knows \cup {r}
  /\ UNCHANGED <<deliveries, replica, lane, run, isEnabled, accepted, received, answered, causes, faults, isForeign>>

\* A process that believes to have the lane does not ask the database.
Claim(r) ==
  /\ run[r].pc = "idle" /\ run[r].nb = 0 /\ r \in knows /\ Due # {}
  /\ CASE run[r].owns -> run' = [run EXCEPT ![r].pc = "claiming"] /\ UNCHANGED <<lane, knows>>
       [] ~run[r].owns /\ IsFree(r) ->
            /\ run' = [run EXCEPT ![r].pc = "claiming"]
            /\ lane' = [owner |-> r, isOver |-> FALSE]
            /\ UNCHANGED knows
       [] OTHER -> knows' = knows \ {r} /\ UNCHANGED <<lane, run>>
  /\ UNCHANGED <<deliveries, replica, isEnabled, accepted, received, answered, causes, faults, isForeign>>

\* The lease of an owner that lives ends only if it is paused, or cannot reach the database.
LeaseEnds ==
  LET r == lane.owner IN
  /\ r # Nobody /\ ~lane.isOver
  /\ lane' = [lane EXCEPT !.isOver = TRUE]
  /\ IF r = Gone
     THEN Mutation # "lease of a crashed process stays" /\ UNCHANGED <<run, causes, faults>>
     ELSE IF Mutation = "lease is too short" THEN UNCHANGED <<run, causes, faults>>
     ELSE Fail("pause") /\ run' = MakeLate({r}, "pause") /\ AddCauses(Held({r}), "pause")
  /\ UNCHANGED <<deliveries, replica, knows, isEnabled, accepted, received, answered, isForeign>>

\* The process has its lane again, or learns that it lost it: the run ends.
Renew(r) ==
  /\ run[r].owns /\ run[r].late # "no"
  /\ IF lane.owner = r
     THEN lane' = [lane EXCEPT !.isOver = FALSE] /\ run' = [run EXCEPT ![r].late = "no"]
     ELSE run' = [run EXCEPT ![r].owns = FALSE, ![r].late = IF run[r].pc = "idle" THEN "no" ELSE @] /\ UNCHANGED lane
  /\ UNCHANGED <<deliveries, replica, knows, isEnabled, accepted, received, answered, causes, faults, isForeign>>

\* A lane that was not served for a while.
GiveBack(r) ==
  /\ \/ run[r].pc = "idle" /\ run[r].owns
     \/ run[r].pc = "claiming" /\ Mutation = "lane is given back during its claim"
  /\ lane' = IF lane.owner = r THEN [owner |-> Nobody, isOver |-> FALSE] ELSE lane
  /\ run' = [run EXCEPT ![r].owns = FALSE, ![r].late = "no"]
  /\ UNCHANGED <<deliveries, replica, knows, isEnabled, accepted, received, answered, causes, faults, isForeign>>

---------------------------------------------------------------------------
(* A run of the lane. *)

\* The deliveries that a run takes, added to those that it has.
WithTaken(r, taken) ==
  [e \in Events |-> IF e \in taken THEN [state |-> "taken", taken |-> [deliveries[e] EXCEPT !.due = 0]] ELSE run[r].flights[e]]

Begin(r) ==
  /\ run[r].pc = "claiming"
  /\ run' = [run EXCEPT ![r].pc = "serving", ![r].owns = TRUE, ![r].flights = WithTaken(r, Due)]
  /\ AddLateCause(r, Due)
  /\ UNCHANGED <<deliveries, replica, lane, knows, isEnabled, accepted, received, answered, faults, isForeign>>

TakeMore(r) ==
  LET taken == Due \ Held({r}) IN
  /\ run[r].pc = "serving" /\ run[r].owns
  /\ taken # {}
  /\ run' = [run EXCEPT ![r].flights = WithTaken(r, taken)]
  /\ AddLateCause(r, taken)
  /\ UNCHANGED <<deliveries, replica, lane, knows, isEnabled, accepted, received, answered, faults, isForeign>>

Attempt(r, e) ==
  /\ run[r].pc = "serving" /\ run[r].flights[e].state = "taken"
  /\ isEnabled
  /\ run' = [run EXCEPT ![r].flights[e].state = IF Mutation = "settlement before the response" THEN "delivered" ELSE "sent"]
  /\ UNCHANGED <<deliveries, replica, lane, knows, isEnabled, accepted, received, answered, causes, faults, isForeign>>

Respond(r, e, result) ==
  /\ run[r].flights[e].state = "sent"
  /\ run' = [run EXCEPT ![r].flights[e].state = result]
  /\ UNCHANGED <<deliveries, replica, lane, knows, isEnabled, accepted, isForeign>>

EndpointHandles(r, e) ==
  /\ Respond(r, e, "delivered")
  /\ Receive({e})
  /\ answered' = answered \cup {e}
  /\ UNCHANGED <<causes, faults>>

EndpointRejects(r, e) ==
  /\ Respond(r, e, "failed")
  /\ Fail("rejection")
  /\ UNCHANGED <<received, answered, causes>>

\* The endpoint handled the event, but responds with an error, or not in time.
EndpointErrs(r, e) ==
  /\ Respond(r, e, "failed")
  /\ Fail("endpoint error")
  /\ Receive({e})
  /\ AddCauses({e}, "endpoint error")
  /\ UNCHANGED answered

\* The process stops, and does not wait longer for the response.
Abort(r, e) ==
  /\ Respond(r, e, "postponed")
  /\ Fail("shutdown")
  /\ \/ Receive({e})
     \/ UNCHANGED received
  /\ AddCauses({e}, "shutdown")
  /\ UNCHANGED answered

\* A failed attempt is repeated later, or was the last one.
Kind(flight) ==
  CASE flight.state = "delivered" -> "delivered"
    [] flight.state = "postponed" -> "postponed"
    [] flight.taken.tries + 1 = MaxAttempts -> "dead"
    [] OTHER -> "retry"

\* A process that does not have the lane learns it.
SettleAs(r, e, kind) ==
  LET before == deliveries[e]
      taken == run[r].flights[e].taken
      isOwner == lane.owner = r
  IN
  /\ deliveries' = [deliveries EXCEPT ![e] = Settled(before, isOwner, taken, kind)]
  /\ isForeign' = (isForeign \/ (IsApplied(before, isOwner, taken, kind) /\ ~IsCurrent(before, taken, kind)))
  /\ run' = [run EXCEPT ![r].flights[e] = NoFlight, ![r].owns = @ /\ isOwner]

SettleAttempt(r, e) ==
  /\ run[r].pc = "serving"
  /\ run[r].flights[e].state \in {"delivered", "failed", "postponed"}
  /\ SettleAs(r, e, Kind(run[r].flights[e]))
  /\ UNCHANGED <<replica, lane, knows, isEnabled, accepted, received, answered, causes, faults>>

\* The endpoint is disabled.
Skip(r, e) ==
  /\ run[r].pc = "serving" /\ run[r].flights[e].state = "taken"
  /\ ~isEnabled
  /\ SettleAs(r, e, "skipped")
  /\ UNCHANGED <<replica, lane, knows, isEnabled, accepted, received, answered, causes, faults>>

\* Nothing is in flight. What was taken and not started stays due: the slice is over, or the lease was lost.
EndRun(r) ==
  LET ended == [IdleRun EXCEPT !.owns = run[r].owns, !.late = IF run[r].owns THEN run[r].late ELSE "no"] IN
  /\ run[r].pc = "serving"
  /\ Flights(r, {"sent", "delivered", "failed", "postponed"}) = {}
  /\ \/ /\ IF Flights(r, {"taken"}) = {} \/ ~run[r].owns THEN UNCHANGED faults ELSE Fail("slice")
        /\ run' = [run EXCEPT ![r] = ended]
     \/ /\ Fail("pause of the endpoint")
        /\ run' = [run EXCEPT ![r] = [ended EXCEPT !.nb = 1]]
  /\ knows' = IF Waiting = {} THEN knows \ {r} ELSE knows
  /\ UNCHANGED <<deliveries, replica, lane, isEnabled, accepted, received, answered, causes, isForeign>>

\* The endpoint may have handled what was sent. The process that starts again is another owner.
Crash(r) ==
  /\ run[r].pc # "idle" \/ run[r].owns
  /\ Fail("crash")
  /\ run' = [run EXCEPT ![r] = IdleRun]
  /\ knows' = knows \ {r}
  /\ lane' = IF lane.owner = r THEN [lane EXCEPT !.owner = Gone] ELSE lane
  /\ \E set \in SUBSET Flights(r, {"sent"}) : Receive(set)
  /\ AddCauses(Flights(r, {"sent", "delivered", "failed", "postponed"}), "crash")
  /\ UNCHANGED <<deliveries, replica, isEnabled, accepted, answered, isForeign>>

---------------------------------------------------------------------------
(* PostgreSQL and time. *)

Replicate(e) ==
  /\ CanFail("data loss") /\ replica[e] # deliveries[e]
  /\ replica' = [replica EXCEPT ![e] = deliveries[e]]
  /\ UNCHANGED <<deliveries, lane, knows, run, isEnabled, accepted, received, answered, causes, faults, isForeign>>

\* A failover to a standby that does not have the last changes, also not of the lane.
DataLoss ==
  LET owners == {r \in Runs : run[r].owns \/ run[r].pc = "claiming"} IN
  /\ Fail("data loss")
  /\ deliveries' = replica
  /\ lane' = [owner |-> Nobody, isOver |-> FALSE]
  /\ run' = MakeLate(owners, "data loss")
  /\ AddCauses({e \in Events : replica[e] # deliveries[e]} \cup Held(owners), "data loss")
  /\ UNCHANGED <<replica, knows, isEnabled, accepted, received, answered, isForeign>>

TimePasses ==
  /\ (\E e \in Events : deliveries[e].due = 1) \/ (\E r \in Runs : run[r].nb = 1)
  /\ deliveries' = [e \in Events |-> [deliveries[e] EXCEPT !.due = Later(@)]]
  /\ replica' = [e \in Events |-> [replica[e] EXCEPT !.due = Later(@)]]
  /\ run' = [r \in Runs |-> [run[r] EXCEPT !.nb = Later(@)]]
  /\ UNCHANGED <<lane, knows, isEnabled, accepted, received, answered, causes, faults, isForeign>>

---------------------------------------------------------------------------

Next ==
  \/ \E e \in Events : Accept(e) \/ ReplayDelivery(e) \/ Replicate(e)
  \/ Disable \/ Enable
  \/ \E r \in Runs :
       Poll(r) \/ Claim(r) \/ Renew(r) \/ GiveBack(r) \/ Begin(r) \/ TakeMore(r) \/ EndRun(r) \/ Crash(r)
  \/ \E r \in Runs, e \in Events :
       Attempt(r, e) \/ EndpointHandles(r, e) \/ EndpointRejects(r, e) \/ EndpointErrs(r, e) \/ Abort(r, e)
       \/ SettleAttempt(r, e) \/ Skip(r, e)
  \/ LeaseEnds \/ DataLoss \/ TimePasses

\* Processes that run take their next step. Events may never come, and no fault must happen.
Fairness ==
  /\ WF_vars(LeaseEnds) /\ WF_vars(TimePasses)
  /\ \A r \in Runs : WF_vars(Poll(r)) /\ WF_vars(Claim(r)) /\ WF_vars(Renew(r)) /\ WF_vars(Begin(r)) /\ WF_vars(EndRun(r))
  /\ \A r \in Runs, e \in Events :
       WF_vars(Attempt(r, e)) /\ WF_vars(EndpointHandles(r, e)) /\ WF_vars(SettleAttempt(r, e)) /\ WF_vars(Skip(r, e))

Spec == Init /\ [][Next]_vars /\ Fairness

---------------------------------------------------------------------------
(* What the documentation promises. *)

\* No accepted event is lost.
AcceptedIsKept == \A e \in accepted : deliveries[e].state # "absent"

\* A delivery counts as delivered only if the endpoint responded with 2xx.
DeliveredIsAnswered == \A e \in Events : deliveries[e].state = "delivered" => e \in answered

\* A settlement changes only a delivery that waits or was skipped, and whose attempt nobody settled before.
SettledByAttempt == ~isForeign

\* The endpoint handles an event more than once only for one of the listed causes.
IsDouble(e) == received[e] > 1
DoubleHasCause == \A e \in Events : IsDouble(e) => causes[e] \cap Listed # {}

\* Two processes send an event at once only for one of the listed causes.
IsOverlap(e) == Cardinality({r \in Runs : run[r].flights[e].state = "sent"}) > 1
OneSender == \A e \in Events : IsOverlap(e) => causes[e] \cap ListedOverlaps # {}

\* Every accepted delivery ends, and every replayed one: no lane is stuck.
AcceptedEnds == \A e \in Events : [](deliveries[e].state = "waiting" => <>(deliveries[e].state # "waiting"))

\* Always true; prints the causes of each double and each overlap, so that a control can find that each listed cause occurs.
ReportCauses == \A e \in Events :
  /\ IsDouble(e) => PrintT(<<"double", causes[e]>>)
  /\ IsOverlap(e) => PrintT(<<"overlap", causes[e]>>)

\* Processes and events are interchangeable.
Symmetry == Permutations(Runs) \cup Permutations(Events)
=============================================================================
