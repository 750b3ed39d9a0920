/** One chaos run: senders and attackers before two gates, faults everywhere, and the record of it all. */
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { makeFolder } from '../support/fixtures.ts';
import { type Sections, until } from '../support/gate.ts';
import { createRandom } from '../support/seeded.ts';
import { Attacker } from './attacker.ts';
import { FaultPlan } from './faults.ts';
import { GateLives, readResources } from './gate-lives.ts';
import { toGatewayFaults } from './gateway-faults.ts';
import { LedgerApp, readLedger } from './ledger.ts';
import { Link } from './link.ts';
import { readLogs } from './logs.ts';
import { SendingSide } from './sending-side.ts';
import { APP_TIMEOUT_MS, EVENTS_PER_SECOND, LEASE_MS, lasts, MAX_IN_PROGRESS, PATH } from './settings.ts';
import type { ChaosStore } from './stores.ts';
import type { RunRecord } from './verdict.ts';
import { WebhookSender } from './webhook-sender.ts';

/** What a run is made of. */
export interface ChaosOptions {
  readonly seed: number;
  /** Events in all; a fifth of them come from the sending side. */
  readonly events: number;
  readonly store: ChaosStore | undefined;
  readonly isFaulty: boolean;
  /** The gates that let each delivery through without claiming its event; default: none. */
  readonly gatesWithoutDedup?: readonly number[];
}

/** The record of a run, and its figures. */
export interface ChaosResult extends RunRecord {
  readonly responses: ReadonlyMap<string, number>;
  readonly durationMs: number;
  readonly ledgerFile: string;
}

const GATES = 2;
/** Less than the tolerance of a timestamp. */
const CALM_STEP_MS = 240_000;
/** There is an attack after so many events. */
const ATTACK_EVERY = 12;
/** Events of the direct sender between two faults. */
const EVENTS_PER_FAULT = 40;
/** Faults stop after this share of the events, so that the end is calm. */
const FAULTY_SHARE = 0.9;
const POSTED_AT_ONCE = 100;

interface GateSetup {
  readonly index: number;
  readonly port: number;
  readonly appPort: number;
  /** How many processes of the gate ran before. */
  readonly life: number;
}

/** The key's name, which the app gets, is that of the process: the judge must know it, also if that was killed before it logged. */
function toSections({ index, port, life, appPort }: GateSetup, { store, gatesWithoutDedup = [] }: ChaosOptions): Sections {
  const webhook = {
    keys: [{ name: `life-${life}`, secret: { file: 'secret' } }],
    dedup: gatesWithoutDedup.includes(index) ? 'off' : { lease: `${LEASE_MS}ms`, maxWait: '1s' },
  };
  const route = {
    name: 'hooks',
    match: { path: PATH },
    upstream: `http://127.0.0.1:${appPort}`,
    timeout: `${APP_TIMEOUT_MS}ms`,
    connectTimeout: '500ms',
    webhook,
  };
  return {
    listen: { address: `127.0.0.1:${port}` },
    // A process that is killed has logged every response.
    log: { flush: '0ms' },
    ...(store && { store: { redis: { ...store.redis, connectTimeout: '1s', commandTimeout: '300ms' } } }),
    routes: [route],
  };
}

/** Runs until every event is acknowledged and handled. */
export async function runChaos(options: ChaosOptions): Promise<ChaosResult> {
  const { seed, events, store } = options;
  const startedAt = Date.now();
  const random = createRandom(seed);
  const app = await LedgerApp.start(join(makeFolder(), 'ledger'), GATES);
  onTestFinished(() => app.stop());
  const gates: GateLives[] = [];
  const links: Record<string, Link> = {};
  for (let index = 0; index < GATES; index++) {
    const toApp = await Link.start(() => app.ports[index] as number);
    const gate = await GateLives.start({
      index,
      folder: makeFolder(),
      sections: (port, life) => toSections({ index, port, life, appPort: toApp.port }, options),
    });
    onTestFinished(() => gate.kill());
    gates.push(gate);
    links[`gate ${index} to app`] = toApp;
    links[`senders to gate ${index}`] = await Link.start(() => gate.port);
  }
  const entries = gates.map(({ index }) => links[`senders to gate ${index}`]?.port ?? 0);
  let turn = 0;
  const balancer = await Link.start(() => entries[turn++ % GATES] as number);
  const sending = await SendingSide.start(GATES, balancer.port);
  const sender = new WebhookSender(entries, createRandom(seed + 1));
  onTestFinished(() => sender.stop());
  const attacker = new Attacker(sender, createRandom(seed + 2));
  const plan = new FaultPlan([...toGatewayFaults({ gates, app, links, sending }), ...(store?.faults ?? [])], random);
  const posted = Math.ceil(events / 5 / POSTED_AT_ONCE) * POSTED_AT_ONCE;
  const stopWatching = watchMasters(store, plan);
  await deliverAll({ direct: events - posted, posted, options, sender, attacker, plan, sending });
  await plan.end();
  for (const link of Object.values(links)) link.heal();
  // Its endpoints would wait for minutes, after so many failures.
  sending.provider.stepClock(CALM_STEP_MS);
  await sending.idle();
  sender.stop();
  // What the senders gave up on may still be on its way, and settlements wait for the store for up to 5 s.
  await until(async () => {
    await Promise.all(gates.map((gate) => gate.scrape()));
    return gates.every(({ life }) => /^sidegate_http_requests_in_flight 0$/m.test(life.scrape?.text ?? ''));
  });
  await lasts(LEASE_MS * 2);
  stopWatching();
  await Promise.all([...gates, sending.provider].map((gate) => gate.scrape()));
  const resources = gates.map(({ life }) => ({ baseline: life.baseline, atRest: readResources(life.pid) }));
  const lives = gates.flatMap((gate) => gate.lives);
  return {
    ledger: readLedger(app.path),
    sent: sender.sent,
    accepted: Array.from({ length: sending.accepted }, (_, i) => `chaos-${i}`),
    attacks: attacker.attacks,
    logs: readLogs(lives),
    faults: plan.records,
    lives,
    resources,
    responses: sender.responses,
    durationMs: Date.now() - startedAt,
    ledgerFile: app.path,
  };
}

/** Gives what ends it. */
function watchMasters({ findMasters }: Partial<ChaosStore> = {}, plan: FaultPlan): () => void {
  let last: string | undefined;
  const look = async (): Promise<void> => {
    const masters = await findMasters?.().catch(() => last);
    if (last !== undefined && masters !== last) plan.recordFailover();
    last = masters;
  };
  const timer = setInterval(() => void look(), 500);
  onTestFinished(() => clearInterval(timer));
  return () => clearInterval(timer);
}

interface Delivering {
  readonly direct: number;
  readonly posted: number;
  readonly options: ChaosOptions;
  readonly sender: WebhookSender;
  readonly attacker: Attacker;
  readonly plan: FaultPlan;
  readonly sending: SendingSide;
}

/** Sends all events at the rate, with attacks and faults between them. */
async function deliverAll({ direct, posted, options, sender, attacker, plan, sending }: Delivering): Promise<void> {
  const inProgress = new Set<Promise<void>>();
  const begin = (work: Promise<void>): void => {
    const running = work.then(() => void inProgress.delete(running));
    inProgress.add(running);
  };
  const startedAt = performance.now();
  for (let number = 0; number < direct; number++) {
    while (inProgress.size >= MAX_IN_PROGRESS) await Promise.race(inProgress);
    const ahead = (number / EVENTS_PER_SECOND) * 1_000 - (performance.now() - startedAt);
    if (ahead > 10) await lasts(ahead);
    begin(sender.deliver(number));
    if (number % ATTACK_EVERY === 0) begin(attacker.attack());
    if (options.isFaulty && number % EVENTS_PER_FAULT === 0 && number < direct * FAULTY_SHARE) plan.startNext();
    sending.post(Math.ceil(((number + 1) / direct) * (posted / POSTED_AT_ONCE)) * POSTED_AT_ONCE);
  }
  await Promise.all(inProgress);
}
