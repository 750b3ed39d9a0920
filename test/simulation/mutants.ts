/** Changes of the code under test that the simulation must find: without them, nobody would know that it can. */
import { readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { fileURLToPath } from 'node:url';

/** One change of one file. */
export interface Mutant {
  readonly name: string;
  /** Below `src`. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

export const MUTANTS: readonly Mutant[] = [
  {
    name: 'a confirmation is never written',
    file: 'gateway/pipeline/claims.ts',
    from: "return kind === 'confirm' ? this.#store.confirm(key, token, fingerprint, retention) : this.#store.release(key, token);",
    to: "return kind === 'confirm' ? Promise.resolve(true) : this.#store.release(key, token);",
  },
  {
    name: 'a failed confirmation is not repeated',
    file: 'gateway/pipeline/claims.ts',
    from: 'this.#inProgress--;\n    this.#enqueue(settlement);',
    to: 'this.#inProgress--;',
  },
  {
    name: 'a claim is released although its outcome is unknown',
    file: 'gateway/upstream/outcome.ts',
    from: "return outcome.failure.nothingSent ? 'release' : 'hold';",
    to: "return 'release';",
  },
  {
    name: 'a handled delivery releases the claim',
    file: 'gateway/upstream/outcome.ts',
    from: "return status >= 200 && status < 300 ? 'confirm' : 'release';",
    to: "return 'release';",
  },
  {
    name: 'a failed delivery confirms the claim',
    file: 'gateway/upstream/outcome.ts',
    from: "return status >= 200 && status < 300 ? 'confirm' : 'release';",
    to: "return 'confirm';",
  },
  {
    name: 'a claim in progress counts as handled',
    file: 'gateway/pipeline/gates/dedup.ts',
    from: "if (found.state === 'in-progress') return new Busy(found.remainingMs);",
    to: "if (found.state === 'in-progress') return acknowledge({ state: 'handled', isSameEvent: true, reason: 'duplicate' });",
  },
  {
    name: 'leases do not end',
    file: 'gateway/pipeline/gates/dedup.ts',
    from: 'token: head.requestId, leaseMs: lease }',
    to: 'token: head.requestId, leaseMs: lease * 1e6 }',
  },
  {
    name: 'leases end early',
    file: 'gateway/pipeline/gates/dedup.ts',
    from: 'token: head.requestId, leaseMs: lease }',
    to: 'token: head.requestId, leaseMs: 2_000 }',
  },
  {
    name: 'timestamps are not compared with the clock',
    file: 'gateway/pipeline/gates/signature.ts',
    from: 'if (skew > tolerance.past) return',
    to: 'if (skew > 1e6 * tolerance.past) return',
  },
  {
    name: 'an older version is forwarded after a newer one',
    file: 'state/redis/redis-store.ts',
    from: "return reply === 0 ? { state: 'stale' } : expectOne(reply, { state: 'entered' });",
    to: "return { state: 'entered' };",
  },
  {
    name: 'two versions of a resource are handled at once',
    file: 'state/redis/redis-store.ts',
    from: "if (typeof reply !== 'number') return { state: 'busy', remainingMs: reply[1] };",
    to: "if (typeof reply !== 'number') return { state: 'entered' };",
  },
  {
    name: 'the inbox responds before the event is stored',
    file: 'provider/inbox/inbox-forwarder.ts',
    from: 'const [result] = await queue.append([event]);',
    to: "queue.append([event]).catch(() => undefined);\n        const result: string = 'stored';",
  },
  {
    name: 'the API responds before the event is stored',
    file: 'provider/queue/sql-queue.ts',
    from: "const results = await this.#append(events, (operation, bodies) => this.#store.call('append', operation, bodies), route);",
    to: "this.#append(events, (operation, bodies) => this.#store.call('append', operation, bodies), route).catch(() => undefined);\n    const results = events.map(() => 'stored' as const);",
  },
  {
    name: 'deliveries of one customer do not wait for each other',
    file: 'provider/queue/sql/append.ts',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the text of a source file.
    from: 'THEN ${BLOCKED} ELSE r.state END',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the text of a source file.
    to: 'THEN ${DUE} ELSE r.state END',
  },
  {
    name: 'a lane forgets its retries',
    file: 'provider/queue/sql/settle.ts',
    from: 'if (state === DUE) noteNext(nexts, lane, next);',
    to: 'if (state === BLOCKED) noteNext(nexts, lane, next);',
  },
];

/** Loads one file of the program with a change. */
export function loadMutant(name: string): void {
  const mutant = MUTANTS.find((each) => each.name === name);
  if (mutant === undefined) throw new Error(`no mutant is called ${JSON.stringify(name)}`);
  const url = new URL(`../../src/${mutant.file}`, import.meta.url).href;
  const text = readFileSync(fileURLToPath(url), 'utf8');
  if (!text.includes(mutant.from)) throw new Error(`${mutant.file} no longer contains what ${JSON.stringify(name)} changes`);
  registerHooks({
    load(loaded, context, nextLoad) {
      if (loaded !== url) return nextLoad(loaded, context);
      return { format: 'module-typescript', shortCircuit: true, source: text.replace(mutant.from, mutant.to) };
    },
  });
}
