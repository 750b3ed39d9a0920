/** `npm run fuzz:frameworks`: a long differential run over all frameworks and fronts; exits with 1 at the first kind of bypass. */
import { parseArgs } from 'node:util';
import { FRAMEWORKS } from '../support/frameworks/framework.ts';
import { type Bypass, type Front, formatBypass, fuzz } from './differential.ts';

const SHOWN_BYPASSES = 20;
const FRONTS: readonly Front[] = ['http1', 'http2', 'nginx'];

const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '100000' },
    seed: { type: 'string', default: '1' },
    frameworks: { type: 'string', default: '' },
    fronts: { type: 'string', default: FRONTS.join(',') },
  },
});
const wanted = values.frameworks === '' ? undefined : values.frameworks.split(',');
const frameworks = FRAMEWORKS.filter(({ name, isAvailable }) => (wanted?.includes(name) ?? true) && isAvailable());
const fronts = FRONTS.filter((front) => values.fronts.split(',').includes(front));
const runs = frameworks.flatMap((framework) => fronts.map((front) => ({ framework, front })));
if (runs.length === 0) {
  console.error(
    `no such framework or front; frameworks: ${FRAMEWORKS.map(({ name }) => name).join(', ')}; fronts: ${FRONTS.join(', ')}`,
  );
  process.exit(2);
}

const requests = Math.ceil(Number(values.requests) / runs.length);
const bypasses: Bypass[] = [];
let total = 0;
for (const [index, { framework, front }] of runs.entries()) {
  const result = await fuzz({ framework, front, requests, seed: Number(values.seed) + index });
  const { admin, billing, account, open } = result.served;
  total += requests;
  bypasses.push(...result.bypasses);
  console.log(
    `${framework.title}, ${front}: ${requests} requests, ${open} served openly, ${admin + billing + account} with proof or by a bypass, ${result.bypasses.length} bypasses`,
  );
}
for (const bypass of bypasses.slice(0, SHOWN_BYPASSES)) console.log(formatBypass(bypass));
console.log(`${total} requests, ${bypasses.length} bypasses (seed ${values.seed})`);
process.exitCode = bypasses.length === 0 ? 0 : 1;
