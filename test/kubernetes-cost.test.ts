import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readNodeRun, renderNodePage } from '../bench/node/page.ts';
import { ABRUPT, BARE, MODES } from '../bench/node/results.ts';

const { modes } = readNodeRun();

describe('the page on the cost of the sidecar on Kubernetes', () => {
  test('is generated from the last run', () => {
    expect(readFileSync(join(import.meta.dirname, '..', 'docs', 'kubernetes-cost.md'), 'utf8')).toBe(renderNodePage());
  });

  test('has all figures of each mode', () => {
    const measured = Object.entries(modes).map(([name, figures]) => [name, Object.keys(figures)]);
    expect(Object.fromEntries(measured)).toEqual({
      [BARE.name]: ['starts'],
      ...Object.fromEntries(MODES.map(({ name }) => [name, ['starts', 'memory', 'restart']])),
      [ABRUPT.name]: ['restart'],
    });
  });
});
