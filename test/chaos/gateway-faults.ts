/** The faults of gates, app, network and sending side. */
import type { Fault } from './faults.ts';
import type { GateLives } from './gate-lives.ts';
import type { AppAction, LedgerApp } from './ledger.ts';
import type { Link } from './link.ts';
import type { SendingSide } from './sending-side.ts';
import { LEASE_MS, lasts } from './settings.ts';

/** Further than the tolerance of a timestamp (5 min). */
const MIN_CLOCK_STEP_MS = 400_000;
const APP_ACTIONS: readonly Exclude<AppAction, 'handle'>[] = [
  'errorBefore',
  'crash',
  'crashBefore',
  'reset',
  'resetBefore',
  'half',
  'hang',
  'hangBefore',
  'late',
];

/** The parts that fail. */
export interface GatewayParts {
  readonly gates: readonly GateLives[];
  readonly app: LedgerApp;
  readonly links: Readonly<Record<string, Link>>;
  readonly sending: SendingSide;
}

/** All faults except those of the store. */
export function toGatewayFaults({ gates, app, links, sending }: GatewayParts): Fault[] {
  return [
    ...gates.flatMap((gate) => toGateFaults(gate, `gate ${gate.index}`)),
    ...toAppFaults(app),
    ...Object.entries(links).flatMap(([name, link]) => toLinkFaults(link, `network ${name}`)),
    ...toSendingFaults(sending),
  ];
}

function toGateFaults(gate: GateLives, target: string): Fault[] {
  return [
    {
      kind: 'gate killed',
      target,
      async make(random) {
        await gate.kill();
        await lasts(random(1_000));
        await gate.launch();
      },
    },
    {
      kind: 'gate paused',
      target,
      async make(random) {
        const resume = gate.pause();
        await lasts(LEASE_MS + 300 + random(1_000));
        resume();
      },
    },
    {
      kind: 'gate paused and killed',
      target,
      async make(random) {
        const resume = gate.pause();
        await lasts(random(1_500));
        await gate.kill();
        resume();
        await gate.launch();
      },
    },
    {
      kind: 'gate restarted',
      target,
      async make() {
        await gate.stop();
        await gate.launch();
      },
    },
    {
      kind: 'clock stepped',
      target,
      async make(random) {
        const step = MIN_CLOCK_STEP_MS + random(800_000);
        gate.stepClock(random(2) === 0 ? step : -step);
        await lasts(500 + random(1_500));
        gate.stepClock(0);
      },
    },
  ];
}

function toAppFaults(app: LedgerApp): Fault[] {
  const target = 'app';
  return [
    ...APP_ACTIONS.map((action) => ({
      kind: `app: ${action}`,
      target,
      async make(random: (limit: number) => number) {
        app.act(action, action.startsWith('crash') ? 1 : 1 + random(5));
        await lasts(300);
      },
    })),
    {
      kind: 'app killed',
      target,
      async make(random) {
        for (let kills = 1 + random(3); kills > 0; kills--) {
          app.signal('SIGKILL');
          await lasts(random(500));
        }
      },
    },
    {
      kind: 'app paused',
      target,
      async make(random) {
        app.signal('SIGSTOP');
        await lasts(300 + random(LEASE_MS + 1_000));
        app.signal('SIGCONT');
      },
    },
  ];
}

/** The faults of one network path; also for that to the store. */
export function toLinkFaults(link: Link, target: string): Fault[] {
  const toFault = (kind: string, begin: (random: (limit: number) => number) => void, most: number): Fault => ({
    kind: `network ${kind}`,
    target,
    async make(random) {
      begin(random);
      await lasts(100 + random(most));
      link.heal();
    },
  });
  return [
    toFault('cut', () => link.cut(), 1_500),
    toFault('stalled', () => link.stall(), 3_500),
    toFault('delayed', (random) => link.delay(20 + random(300)), 3_000),
  ];
}

function toSendingFaults(sending: SendingSide): Fault[] {
  const target = 'sending side';
  const { provider, disk } = sending;
  const diskFull: Fault[] =
    disk === undefined
      ? []
      : [
          {
            kind: 'disk full',
            target,
            async make(random) {
              disk.fill();
              await lasts(1_000 + random(2_000));
              disk.free();
            },
          },
        ];
  return [
    ...diskFull,
    {
      kind: 'provider killed',
      target,
      async make() {
        await provider.kill();
        await provider.launch();
      },
    },
    { kind: 'posting app killed', target, make: async () => sending.kill() },
  ];
}
