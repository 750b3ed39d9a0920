import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import * as claims from './claims/checks.ts';
import * as lanes from './lanes/checks.ts';

const read = (...path: string[]): string => readFileSync(join(import.meta.dirname, '..', '..', ...path), 'utf8');
const PAGE = read('docs', 'explanation', 'handled-once.md');
const [, ABOUT_CLAIMS = '', ABOUT_LANES = ''] = PAGE.split(/^## (?:Where "once" ends|Events that sidegate sends)$/m);

function findCauses(text: string): string[] {
  return [...text.matchAll(/^\| `([^`]+)` \|/gm)].map(([, cause = '']) => cause);
}

describe('the documentation', () => {
  test('lists the causes of doubles that the models have', () => {
    expect(findCauses(ABOUT_CLAIMS)).toEqual(claims.CAUSES);
    expect(findCauses(ABOUT_LANES.split('## ')[0] ?? '')).toEqual(lanes.CAUSES);
    for (const overlap of claims.OVERLAPS) expect(ABOUT_CLAIMS).toContain(`\`${overlap}\``);
  });

  test('names invariants that are checked', () => {
    const checked = [claims, lanes].flatMap(({ toCheck }) => {
      const { invariants = [], properties = [] } = toCheck({ isLive: true });
      return [...invariants, ...properties];
    });
    const named = [...PAGE.matchAll(/`((?:[A-Z][a-z]+){2,})`/g)].map(([, name = '']) => name);
    expect(new Set(named)).toEqual(new Set(checked));
  });

  test('has the sizes and numbers of states that are checked', () => {
    const rows = [...read('docs', 'reliability.md').matchAll(/^\| (?:claims|lanes) \| ([^|]+) \| ([\d,]+) \|$/gm)].map(
      ([, size = '', states = '']) => ({ name: size.replace(' (long)', ''), states: Number(states.replaceAll(',', '')) }),
    );
    expect(rows).toEqual([...claims.SCOPES, ...lanes.SCOPES].map(({ name, states }) => ({ name, states })));
  });
});
