import { readFileSync, writeFileSync } from 'node:fs';
import { afterEach, describe, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { until } from '../support/gate.ts';
import { type CgroupGate, NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';

let gate: CgroupGate | undefined;

afterEach(async () => {
  await gate?.stop();
  gate = undefined;
});

function toSections(count: number) {
  return {
    routes: Array.from({ length: count }, (_, i) => ({
      name: `r${i}`,
      match: { path: `/${i}` },
      upstream: 'http://127.0.0.1:9',
      webhook: { keys: [{ name: 'k', secret: { file: `s${i}` } }] },
    })),
  };
}

const toFiles = (count: number): Record<string, string> =>
  Object.fromEntries(
    Array.from({ length: count }, (_, i) => [`s${i}`, `whsec_${Buffer.from(`secret-${i}`.padEnd(32, 'x')).toString('base64')}`]),
  );

async function reload(running: CgroupGate, text: string): Promise<Record<string, unknown>> {
  const before = running.log().length;
  writeFileSync(running.config, text);
  return until(() => {
    if (!running.isAlive()) throw new Error('the gate ended');
    return running
      .log()
      .slice(before)
      .find(({ msg }) => msg === 'config_reloaded' || msg === 'config_reload_failed');
  });
}

// 384 webhook routes are the most at 96 MiB.
describe.skipIf(NO_CGROUPS !== undefined)('a gate with 96 MiB', () => {
  test('survives reloads of the largest config that it accepts, and keeps it when a larger one does not fit', async () => {
    gate = await startGateInCgroup(96, toSections(380), toFiles(420));
    const text = readFileSync(gate.config, 'utf8');
    for (let i = 0; i < 3; i++) expect(await reload(gate, `${text}# ${i}\n`)).toMatchObject({ msg: 'config_reloaded' });
    const larger = stringify({ ...(parse(text) as object), ...toSections(420) });
    const rejected = await reload(gate, larger);
    expect(JSON.stringify(rejected)).toContain('420 routes and 0 endpoints need 14.8Mi');
    const huge = stringify({ ...(parse(text) as object), ...toSections(3_000) });
    expect(JSON.stringify(await reload(gate, huge))).toContain('the heap of this process has no room for more');
    expect(gate.isAlive()).toBe(true);
  }, 180_000);
});

describe.skipIf(NO_CGROUPS !== undefined)('a gate with 192 MiB', () => {
  test.each(['1,', '[],', '{},'])(
    'keeps its config when the next one is mostly %s',
    async (value) => {
      gate = await startGateInCgroup(192, toSections(1), toFiles(1));
      const text = readFileSync(gate.config, 'utf8');
      for (const bytes of [170_000, 240_000, 330_000]) {
        const dense = `${text}x: [${value.repeat(bytes / value.length)}]\n`;
        expect(await reload(gate, dense)).toMatchObject({ msg: 'config_reload_failed' });
      }
      expect(gate.isAlive()).toBe(true);
    },
    60_000,
  );
});
