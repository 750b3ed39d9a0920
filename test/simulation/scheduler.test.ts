import { beforeEach, expect, test } from 'vitest';
import { type Owner, Scheduler } from './scheduler.ts';

let scheduler: Scheduler;
let owner: Owner;
let ran: string[];

beforeEach(() => {
  scheduler = new Scheduler(1);
  owner = scheduler.createOwner('app');
  ran = [];
});

/** Schedules events that run in this order unless a pause changes it. */
function schedule(...names: string[]): void {
  for (const [index, name] of names.entries()) scheduler.after(index + 1, owner, () => ran.push(name));
}

test('events that wait for the end of a pause keep their order, even if the pause becomes longer', async () => {
  owner.pausedUntil = 2.5;
  schedule('first', 'second', 'third', 'fourth', 'fifth');
  const other = scheduler.createOwner('chaos');
  scheduler.after(1.5, other, () => {
    owner.pausedUntil = 4.5;
  });
  await scheduler.run(10);
  expect(ran).toEqual(['first', 'second', 'third', 'fourth', 'fifth']);
});

test('a pause that ends early lets what waits run before what is due later', async () => {
  owner.pausedUntil = 100;
  schedule('first', 'second', 'third', 'fourth');
  const other = scheduler.createOwner('chaos');
  scheduler.after(2.5, other, () => scheduler.resume(owner));
  await scheduler.run(10);
  expect(ran).toEqual(['first', 'second', 'third', 'fourth']);
});
