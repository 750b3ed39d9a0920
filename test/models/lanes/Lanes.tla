------------------------------- MODULE Lanes -------------------------------
(* The lane protocol of the provider: how the deliveries of one endpoint are accepted, leased, attempted and settled.     *)
(* A lane is a job of BullMQ; a run serves it. A run is used again for the next job. Each step of a process is separate,  *)
(* and other processes can take any number of steps in between.                                                           *)
EXTENDS LaneStore, FiniteSets, TLC

CONSTANTS
  Runs,        \* Processes that serve lanes; their tokens.
  MaxFaults,   \* Faults in one behaviour.
  Faults,      \* The kinds of fault that can happen.
  Durability,  \* "replicated": an event is accepted once the replica has it. "local" otherwise.
  HasSweep,    \* Whether the sweep runs.
  Listed,      \* The causes of a double that the documentation names.
  ListedOverlaps \* The causes of two attempts at once that it names.

VARIABLES
  store,      \* Deliveries and lane.
  replica,    \* What a failover keeps of the deliveries.
  job,        \* The job that is the lease of the lane.
  delayed,    \* When the delayed job adds one.
  isWaking,   \* The API has yet to add a job for what it stored.
  run,        \* The state of each process.
  isEnabled,  \* The endpoint.
  accepted,   \* Events that the API accepted with 202.
  received,   \* How often the endpoint handled each event: 0, 1, or 2 for "more than once".
  answered,   \* Events for which the endpoint sent a 2xx.
  causes,     \* For each event, the faults that can lead to a double.
  faults,
  isForeign   \* A settlement changed a delivery that was settled before, or that another run was to settle.

vars == <<store, replica, job, delayed, isWaking, run, isEnabled, accepted, received, answered, causes, faults, isForeign>>

NoJob == [state |-> "none", holder |-> 0, again |-> FALSE]
NoFlight == [state |-> "none", taken |-> NoDelivery]
\* `late`: why another run can have the lane already, or "no".
IdleRun == [pc |-> "idle", at |-> Never, late |-> "no", flights |-> [e \in Events |-> NoFlight]]

Init ==
  /\ store = EmptyStore
  /\ replica = EmptyStore.deliveries
  /\ job = NoJob
  /\ delayed = Never
  /\ isWaking = FALSE
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
Flights(r, states) == {e \in Events : run[r].flights[e].state \in states}
AddCauses(set, cause) == causes' = [e \in Events |-> IF e \in set THEN causes[e] \cup {cause} ELSE causes[e]]
\* A run that lost its lease, and does not know it yet.
MakeLate(set, cause) == [r \in Runs |-> IF r \in set THEN [run[r] EXCEPT !.late = cause] ELSE run[r]]
Held(set) == {e \in Events : \E r \in set : run[r].flights[e].state # "none"}
AddLateCause(r, set) == IF run[r].late = "no" THEN UNCHANGED causes ELSE AddCauses(set, run[r].late)
Receive(set) == received' = [e \in Events |-> IF e \in set THEN Count(received[e]) ELSE received[e]]

\* BullMQ: one job for each endpoint. A job that is added while one is active follows it.
Added(j) ==
  CASE j.state = "none" -> [NoJob EXCEPT !.state = "waiting"]
    [] j.state = "active" /\ Mutation # "wake-up during a run is lost" -> [j EXCEPT !.again = TRUE]
    [] OTHER -> j
Completed(j, r) ==
  IF j.state # "active" \/ j.holder # r THEN j ELSE IF j.again THEN [NoJob EXCEPT !.state = "waiting"] ELSE NoJob

---------------------------------------------------------------------------
(* The API. *)

Accept(e) ==
  LET reply == Append(store, e) IN
  /\ reply.result = "stored"
  /\ store' = reply.next
  /\ replica' = IF Durability = "replicated" THEN [replica EXCEPT ![e] = reply.next.deliveries[e]] ELSE replica
  /\ isWaking' = (isWaking \/ reply.wake)
  /\ accepted' = accepted \cup {e}
  /\ UNCHANGED <<job, delayed, run, isEnabled, received, answered, causes, faults, isForeign>>

ReplayDelivery(e) ==
  LET reply == Replay(store, e) IN
  /\ reply.changed = 1
  /\ Fail("replay")
  /\ store' = reply.next
  /\ isWaking' = (isWaking \/ reply.wake)
  /\ AddCauses({e}, "replay")
  /\ UNCHANGED <<replica, job, delayed, run, isEnabled, accepted, received, answered, isForeign>>

AddJob ==
  /\ isWaking
  /\ isWaking' = FALSE
  /\ job' = Added(job)
  /\ UNCHANGED <<store, replica, delayed, run, isEnabled, accepted, received, answered, causes, faults, isForeign>>

ApiCrashes ==
  /\ isWaking
  /\ Fail("crash")
  /\ isWaking' = FALSE
  /\ UNCHANGED <<store, replica, job, delayed, run, isEnabled, accepted, received, answered, causes, isForeign>>

Disable ==
  /\ isEnabled
  /\ Fail("disabling")
  /\ isEnabled' = FALSE
  /\ UNCHANGED <<store, replica, job, delayed, isWaking, run, accepted, received, answered, causes, isForeign>>

Enable ==
  /\ ~isEnabled
  /\ isEnabled' = TRUE
  /\ store' = Wake(store)
  /\ isWaking' = TRUE
  /\ UNCHANGED <<replica, job, delayed, run, accepted, received, answered, causes, faults, isForeign>>

---------------------------------------------------------------------------
(* A run of the lane. *)

GetJob(r) ==
  /\ run[r].pc = "idle" /\ job.state = "waiting"
  /\ job' = [job EXCEPT !.state = "active", !.holder = r]
  /\ run' = [run EXCEPT ![r].pc = "starting"]
  /\ UNCHANGED <<store, replica, delayed, isWaking, isEnabled, accepted, received, answered, causes, faults, isForeign>>

\* The deliveries that a run takes, added to those that it has.
WithTaken(r, taken, s) ==
  [e \in Events |-> IF e \in taken THEN [state |-> "taken", taken |-> s.deliveries[e]] ELSE run[r].flights[e]]

BeginRun(r) ==
  LET reply == Begin(store, r) IN
  /\ run[r].pc = "starting"
  /\ store' = reply.next
  /\ run' = [run EXCEPT ![r] =
       CASE reply.hasWork -> [@ EXCEPT !.pc = "serving", !.flights = WithTaken(r, Due(reply.next), reply.next)]
         [] reply.at = Never -> [@ EXCEPT !.pc = "completing"]
         [] OTHER -> [@ EXCEPT !.pc = "scheduling", !.at = reply.at]]
  /\ AddLateCause(r, Waiting(store))
  /\ UNCHANGED <<replica, job, delayed, isWaking, isEnabled, accepted, received, answered, faults, isForeign>>

\* The run learns that another one owns the lane: it drops what it has, and ends.
Lose(r) == run' = [run EXCEPT ![r] = [IdleRun EXCEPT !.pc = "completing"]]

TakeMore(r) ==
  LET reply == Take(store, r, Held({r})) IN
  /\ run[r].pc = "serving"
  /\ IF reply.isHeld
     THEN reply.taken # {} /\ run' = [run EXCEPT ![r].flights = WithTaken(r, reply.taken, store)]
     ELSE Lose(r)
  /\ AddLateCause(r, reply.taken)
  /\ UNCHANGED <<store, replica, job, delayed, isWaking, isEnabled, accepted, received, answered, faults, isForeign>>

Attempt(r, e) ==
  /\ run[r].pc = "serving" /\ run[r].flights[e].state = "taken"
  /\ isEnabled
  /\ run' = [run EXCEPT ![r].flights[e].state = IF Mutation = "settlement before the response" THEN "delivered" ELSE "sent"]
  /\ UNCHANGED <<store, replica, job, delayed, isWaking, isEnabled, accepted, received, answered, causes, faults, isForeign>>

Respond(r, e, result) ==
  /\ run[r].flights[e].state = "sent"
  /\ run' = [run EXCEPT ![r].flights[e].state = result]
  /\ UNCHANGED <<store, replica, job, delayed, isWaking, isEnabled, accepted, isForeign>>

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
Kinds(flight) ==
  CASE flight.state = "delivered" -> {<<"delivered", Never>>}
    [] flight.state = "postponed" -> {<<"postponed", 0>>}
    [] flight.taken.tries + 1 = MaxAttempts -> {<<"dead", Never>>}
    [] OTHER -> {<<"retry", 1>>}

SettleAs(r, e, kind, due) ==
  LET taken == run[r].flights[e].taken
      reply == Settle(store, r, e, taken, kind, due)
      before == store.deliveries[e]
      isOther == before.state # "waiting" \/ before.attempt # taken.attempt \/ store.lane.own # r
  IN
  /\ store' = reply.next
  /\ isForeign' = (isForeign \/ (isOther /\ reply.next # store))
  /\ IF ~reply.isHeld THEN Lose(r)
     ELSE run' = [run EXCEPT
       ![r].flights[e] = NoFlight,
       ![r].pc = IF reply.isEmpty /\ Held({r}) = {e}
                 THEN "completing" ELSE @]

SettleAttempt(r, e) ==
  /\ run[r].pc = "serving"
  /\ run[r].flights[e].state \in {"delivered", "failed", "postponed"}
  /\ \E how \in Kinds(run[r].flights[e]) : SettleAs(r, e, how[1], how[2])
  /\ UNCHANGED <<replica, job, delayed, isWaking, isEnabled, accepted, received, answered, causes, faults>>

\* The endpoint is disabled.
Skip(r, e) ==
  /\ run[r].pc = "serving" /\ run[r].flights[e].state = "taken"
  /\ ~isEnabled
  /\ SettleAs(r, e, "skipped", Never)
  /\ UNCHANGED <<replica, job, delayed, isWaking, isEnabled, accepted, received, answered, causes, faults>>

\* Nothing is in flight. What was taken and not started stays due: the slice is over. `notBefore`: the endpoint asked for a pause.
EndRun(r) ==
  /\ run[r].pc = "serving"
  /\ Flights(r, {"sent", "delivered", "failed", "postponed"}) = {}
  /\ \/ /\ IF Flights(r, {"taken"}) = {} THEN UNCHANGED faults ELSE Fail("slice")
        /\ run' = [run EXCEPT ![r] = [IdleRun EXCEPT !.pc = "finishing", !.late = run[r].late]]
     \/ /\ Fail("pause of the endpoint")
        /\ run' = [run EXCEPT ![r] = [IdleRun EXCEPT !.pc = "finishing", !.at = MaxTime, !.late = run[r].late]]
  /\ UNCHANGED <<store, replica, job, delayed, isWaking, isEnabled, accepted, received, answered, causes, isForeign>>

FinishRun(r) ==
  LET reply == Finish(store, r, run[r].at) IN
  /\ run[r].pc = "finishing"
  /\ store' = reply.next
  /\ run' = [run EXCEPT ![r].at = reply.at, ![r].pc =
       CASE ~reply.isHeld \/ reply.at = Never -> "completing"
         [] reply.at = 0 -> "adding"
         [] reply.isScheduled -> "scheduling"
         [] OTHER -> "completing"]
  /\ UNCHANGED <<replica, job, delayed, isWaking, isEnabled, accepted, received, answered, causes, faults, isForeign>>

\* The next job of the lane, now or later. A later one replaces the one that was scheduled.
AddNext(r) ==
  /\ run[r].pc \in {"adding", "scheduling"}
  /\ IF run[r].pc = "adding" THEN job' = Added(job) /\ UNCHANGED delayed ELSE delayed' = run[r].at /\ UNCHANGED job
  /\ run' = [run EXCEPT ![r].pc = "completing"]
  /\ UNCHANGED <<store, replica, isWaking, isEnabled, accepted, received, answered, causes, faults, isForeign>>

Complete(r) ==
  /\ run[r].pc = "completing"
  /\ job' = Completed(job, r)
  /\ run' = [run EXCEPT ![r] = IdleRun]
  /\ UNCHANGED <<store, replica, delayed, isWaking, isEnabled, accepted, received, answered, causes, faults, isForeign>>

\* The endpoint may have handled what was sent.
Crash(r) ==
  /\ run[r].pc # "idle"
  /\ Fail("crash")
  /\ run' = [run EXCEPT ![r] = IdleRun]
  /\ job' = IF job.holder = r THEN [job EXCEPT !.holder = 0] ELSE job
  /\ \E set \in SUBSET Flights(r, {"sent"}) : Receive(set)
  /\ AddCauses(Flights(r, {"sent", "delivered", "failed", "postponed"}), "crash")
  /\ UNCHANGED <<store, replica, delayed, isWaking, isEnabled, accepted, answered, isForeign>>

---------------------------------------------------------------------------
(* BullMQ, Redis and time. *)

\* A running process renews its lease, unless it is paused or cannot reach Redis.
LeaseEnds ==
  LET r == job.holder IN
  /\ job.state = "active"
  /\ job' = [job EXCEPT !.state = "waiting", !.holder = 0]
  /\ IF r = 0 \/ Mutation = "lease is too short"
     THEN UNCHANGED <<run, causes, faults>>
     ELSE Fail("pause") /\ run' = MakeLate({r}, "pause") /\ AddCauses(Held({r}), "pause")
  /\ UNCHANGED <<store, replica, delayed, isWaking, isEnabled, accepted, received, answered, isForeign>>

FireDelayed ==
  /\ delayed = 0
  /\ delayed' = Never
  /\ \/ job' = Added(job) /\ UNCHANGED faults
     \/ Fail("crash") /\ UNCHANGED job
  /\ UNCHANGED <<store, replica, isWaking, run, isEnabled, accepted, received, answered, causes, isForeign>>

JobsLost ==
  /\ job # NoJob \/ delayed # Never
  /\ Fail("lost jobs")
  /\ job' = NoJob
  /\ delayed' = Never
  /\ run' = MakeLate({job.holder}, "data loss")
  /\ AddCauses(Held({job.holder} \cap Runs), "data loss")
  /\ UNCHANGED <<store, replica, isWaking, isEnabled, accepted, received, answered, isForeign>>

Replicate(e) ==
  /\ CanFail("data loss") /\ replica[e] # store.deliveries[e]
  /\ replica' = [replica EXCEPT ![e] = store.deliveries[e]]
  /\ UNCHANGED <<store, job, delayed, isWaking, run, isEnabled, accepted, received, answered, causes, faults, isForeign>>

\* A failover to a replica, without the jobs.
DataLoss ==
  /\ replica # store.deliveries
  /\ Fail("data loss")
  /\ store' = [store EXCEPT !.deliveries = replica]
  /\ job' = NoJob
  /\ delayed' = Never
  /\ run' = MakeLate({job.holder}, "data loss")
  /\ AddCauses({e \in Events : replica[e] # store.deliveries[e]} \cup Held({job.holder} \cap Runs), "data loss")
  /\ UNCHANGED <<replica, isWaking, isEnabled, accepted, received, answered, isForeign>>

Sweep ==
  /\ HasSweep
  /\ Due(store) # {} /\ store.lane.nb \in {Never, 0}
  /\ job.state = "none" /\ delayed # 0
  /\ job' = Added(job)
  /\ UNCHANGED <<store, replica, delayed, isWaking, run, isEnabled, accepted, received, answered, causes, faults, isForeign>>

TimePasses ==
  /\ Tick(store) # store \/ delayed \notin {0, Never} \/ \E r \in Runs : run[r].at \notin {0, Never}
  /\ store' = Tick(store)
  /\ replica' = [e \in Events |-> [replica[e] EXCEPT !.due = Later(@)]]
  /\ delayed' = Later(delayed)
  /\ run' = [r \in Runs |-> [run[r] EXCEPT !.at = Later(@), !.flights = [e \in Events |-> [@[e] EXCEPT !.taken.due = Later(@)]]]]
  /\ UNCHANGED <<job, isWaking, isEnabled, accepted, received, answered, causes, faults, isForeign>>

---------------------------------------------------------------------------

Step(r) == GetJob(r) \/ BeginRun(r) \/ FinishRun(r) \/ AddNext(r) \/ Complete(r)

Next ==
  \/ \E e \in Events : Accept(e) \/ ReplayDelivery(e) \/ Replicate(e)
  \/ AddJob \/ ApiCrashes \/ Disable \/ Enable
  \/ \E r \in Runs : Step(r) \/ TakeMore(r) \/ EndRun(r) \/ Crash(r)
  \/ \E r \in Runs, e \in Events :
       Attempt(r, e) \/ EndpointHandles(r, e) \/ EndpointRejects(r, e) \/ EndpointErrs(r, e) \/ Abort(r, e)
       \/ SettleAttempt(r, e) \/ Skip(r, e)
  \/ LeaseEnds \/ FireDelayed \/ JobsLost \/ DataLoss \/ Sweep \/ TimePasses

\* Processes that run take their next step. Events may never come, and no fault must happen.
Fairness ==
  /\ WF_vars(AddJob) /\ WF_vars(LeaseEnds) /\ WF_vars(FireDelayed) /\ WF_vars(Sweep) /\ WF_vars(TimePasses)
  /\ \A r \in Runs : WF_vars(Step(r)) /\ WF_vars(EndRun(r))
  /\ \A r \in Runs, e \in Events :
       WF_vars(Attempt(r, e)) /\ WF_vars(EndpointHandles(r, e)) /\ WF_vars(SettleAttempt(r, e)) /\ WF_vars(Skip(r, e))

Spec == Init /\ [][Next]_vars /\ Fairness

---------------------------------------------------------------------------
(* What the documentation promises. *)

\* No accepted event is lost.
AcceptedIsKept == \A e \in accepted : store.deliveries[e].state # "absent"

\* A delivery counts as delivered only if the endpoint responded with 2xx.
DeliveredIsAnswered == \A e \in Events : store.deliveries[e].state = "delivered" => e \in answered

\* A settlement changes only the attempt that it settles, and only while its run owns the lane.
SettledByHolder == ~isForeign

\* The endpoint handles an event more than once only for one of the listed causes.
IsDouble(e) == received[e] > 1
DoubleHasCause == \A e \in Events : IsDouble(e) => causes[e] \cap Listed # {}

\* Two runs send an event at once only for one of the listed causes.
IsOverlap(e) == Cardinality({r \in Runs : run[r].flights[e].state = "sent"}) > 1
OneSender == \A e \in Events : IsOverlap(e) => causes[e] \cap ListedOverlaps # {}

\* Every accepted delivery ends, and every replayed one: no lane is stuck.
AcceptedEnds == \A e \in Events : [](store.deliveries[e].state = "waiting" => <>(store.deliveries[e].state # "waiting"))

\* Always true; prints the causes of each double and each overlap, so that a control can find that each listed cause occurs.
ReportCauses == \A e \in Events :
  /\ IsDouble(e) => PrintT(<<"double", causes[e]>>)
  /\ IsOverlap(e) => PrintT(<<"overlap", causes[e]>>)

\* Processes and events are interchangeable.
Symmetry == Permutations(Runs) \cup Permutations(Events)
=============================================================================
