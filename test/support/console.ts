/** A gate with a sending side and users of the console. */
import { join } from 'node:path';
import { makeFolder } from './fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute } from './gate.ts';
import { makeEntry, toBasic } from './users.ts';

export const PASSWORD = 'correct horse battery staple';

/** Of the user who may act. */
export const LOGIN = toBasic('operator', PASSWORD);

/** The admin section with the user of `LOGIN`. */
export const ADMIN = { address: '127.0.0.1:0', basic: { realm: 'console', users: { file: 'operators' } } };

const ENDPOINT_SECRET = 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD';

/** Starts the gate; its endpoint `acme` and its route are the app. */
export function startConsoleGate(appPort: number, sections: Sections = {}, endpoint: Sections = {}): Promise<TestGate> {
  const provider = {
    address: '127.0.0.1:0',
    queue: { sqlite: { path: join(makeFolder(), 'queue.db'), allowVolatile: true } },
    egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] },
    schedule: [],
    endpoints: [{ name: 'acme', url: `http://127.0.0.1:${appPort}/hooks`, secret: { file: 'endpoint-secret' }, ...endpoint }],
  };
  const files = { operators: makeEntry('operator', PASSWORD), token: 't'.repeat(32), 'endpoint-secret': ENDPOINT_SECRET };
  return startGate({ admin: ADMIN, provider, routes: [toRoute(appPort)], ...sections }, undefined, files);
}
