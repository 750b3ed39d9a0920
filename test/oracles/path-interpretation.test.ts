import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sendRaw, toRequestText } from '../support/client.ts';
import { FRAMEWORKS, type RunningFramework, startFramework, toFrameworkResponse } from '../support/frameworks/framework.ts';
import { startGuarded } from '../support/frameworks/guarded.ts';
import { MORE_TARGETS, SHOWN_TARGETS } from '../support/frameworks/targets.ts';
import type { TestGate } from '../support/gate.ts';

const HEAVY = FRAMEWORKS.filter(({ cost }) => cost === 'heavy');

describe.each(HEAVY)('in front of $title', (framework) => {
  let running: RunningFramework | undefined;
  let gate: TestGate | undefined;
  beforeAll(async () => {
    if (!framework.isAvailable()) return;
    running = await startFramework(framework);
    gate = await startGuarded(running.port);
  });
  afterAll(async () => {
    await gate?.stop();
    await running?.stop();
  });

  test('serves no protected handler without its gates, in any spelling of its path', async (context) => {
    if (gate === undefined) return context.skip();
    const bypasses: string[] = [];
    for (const target of [...SHOWN_TARGETS, ...MORE_TARGETS]) {
      const head = [`GET ${target} HTTP/1.1`, 'Host: app.example', 'Connection: close'];
      const { served } = toFrameworkResponse(await sendRaw(gate.port, toRequestText(head)));
      if (served !== undefined && served.handler !== 'open') bypasses.push(`${target}: ${served.handler}`);
    }
    expect(bypasses).toEqual([]);
  });
});
