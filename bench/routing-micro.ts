/** Measures only the look-up of a route: CPU per request by the form of the path and the number of routes. */
import { cpuUsage, stdout } from 'node:process';
import { HeaderFields } from '../src/core/headers.ts';
import { parseTarget, type RequestTarget } from '../src/core/target.ts';
import { RouteTable } from '../src/gateway/pipeline/router.ts';

const ROUNDS = 9;
const LOOK_UPS = 1_000_000;

interface Scenario {
  readonly name: string;
  readonly routes: readonly ReturnType<typeof toRoute>[];
  readonly path: string;
}

function toRoute(match: object, gateIdentity: string, name = JSON.stringify(match)) {
  return { name, gateIdentity, match: { methods: ['POST'], allowInPath: [], trustAppToDistinguish: [], ...match } };
}

const HOOK = toRoute({ path: '/hooks/billing' }, 'webhook');
const OPEN = toRoute({ pathPrefix: '/' }, 'open');
const ADMIN = toRoute({ pathPrefix: '/admin' }, 'basic');
const MANY = Array.from({ length: 50 }, (_, i) => toRoute({ path: `/hooks/sender-${i}` }, `webhook ${i}`));

const SCENARIOS: readonly Scenario[] = [
  { name: 'a delivery, one route', routes: [HOOK], path: '/hooks/billing' },
  { name: 'a delivery beside an open /', routes: [HOOK, ADMIN, OPEN], path: '/hooks/billing' },
  { name: 'a delivery among 50 routes', routes: [...MANY, HOOK, ADMIN, OPEN], path: '/hooks/billing' },
  { name: 'a plain path of an open /', routes: [HOOK, ADMIN, OPEN], path: '/assets/logo-2024/large' },
  { name: 'the same with upper case and a dot', routes: [HOOK, ADMIN, OPEN], path: '/Assets/Logo-2024/large.png' },
  { name: 'the same with escapes', routes: [HOOK, ADMIN, OPEN], path: '/assets/caf%C3%A9/large' },
  { name: 'the same where all routes ask the same', routes: [OPEN], path: '/Assets/Logo-2024/large.png' },
];

/** CPU time per look-up, in nanoseconds. */
function measure({ routes, path }: Scenario): number {
  const table = new RouteTable(routes);
  const target = parseTarget(path) as RequestTarget;
  const query = { method: 'POST', host: 'app.example', target, headers: new HeaderFields([]) };
  const before = cpuUsage();
  let found = 0;
  for (let i = 0; i < LOOK_UPS; i++) if (!('code' in table.find(query))) found++;
  const { user, system } = cpuUsage(before);
  if (found !== LOOK_UPS) throw new Error(`${path} was not found`);
  return ((user + system) * 1_000) / LOOK_UPS;
}

const figures = SCENARIOS.map((): number[] => []);
for (let round = 0; round < ROUNDS; round++) for (const [i, scenario] of SCENARIOS.entries()) figures[i]?.push(measure(scenario));
for (const [i, { name }] of SCENARIOS.entries()) {
  const sorted = figures[i]?.toSorted((a, b) => a - b) ?? [];
  stdout.write(
    `${name}: ${sorted[ROUNDS >> 1]?.toFixed(0)} ns CPU per look-up (${sorted[0]?.toFixed(0)} to ${sorted.at(-1)?.toFixed(0)})\n`,
  );
}
