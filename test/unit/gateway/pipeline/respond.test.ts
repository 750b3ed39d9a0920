import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { describe, expect, test } from 'vitest';
import { ESCAPED_ERRORS } from '../../../../src/core/safe-events.ts';
import { TurnEnd } from '../../../../src/gateway/pipeline/respond.ts';

describe('TurnEnd', () => {
  const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

  test('runs the actions of a turn in order at its end, after all microtasks, and those of the next turn separately', async () => {
    const turnEnd = new TurnEnd();
    const done: string[] = [];
    turnEnd.add(() => {
      done.push('a');
      turnEnd.add(() => done.push('later'));
    });
    await Promise.resolve();
    turnEnd.add(() => done.push('b'));
    expect(done).toEqual([]);
    await nextTurn();
    expect(done).toEqual(['a', 'b']);
    await nextTurn();
    expect(done).toEqual(['a', 'b', 'later']);
  });

  test('reports an exception in an action, and runs the others', async () => {
    const reported: unknown[] = [];
    const onEscaped = (message: unknown): void => void reported.push(message);
    subscribe(ESCAPED_ERRORS, onEscaped);
    const turnEnd = new TurnEnd();
    const done: string[] = [];
    turnEnd.add(() => {
      throw new Error('marked');
    });
    turnEnd.add(() => done.push('b'));
    await nextTurn();
    unsubscribe(ESCAPED_ERRORS, onEscaped);
    expect(done).toEqual(['b']);
    expect(reported).toEqual([{ site: 'timer', error: new Error('marked') }]);
  });
});
