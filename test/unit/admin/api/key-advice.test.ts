import { expect, test } from 'vitest';
import { adviseOnKey, type KeyFacts } from '../../../../src/admin/api/key-advice.ts';

const S = 1_000;
const MIN = 60 * S;
const H = 60 * MIN;
const D = 24 * H;
const NOW = 1_800_000_000_000;
const ago = (duration: number): number => NOW - duration;

const FACTS: KeyFacts = {
  now: NOW,
  state: 'live',
  notBefore: undefined,
  notAfter: undefined,
  hasSuccessor: false,
  since: ago(10 * D),
  lastUsed: undefined,
  isOld: false,
  newerUsed: undefined,
  olderUsed: undefined,
  horizon: 3 * D,
};

test.each<[string, Partial<KeyFacts>, string]>([
  ['ended', { state: 'over', notAfter: ago(3 * D) }, 'it ended 3 d ago: remove it'],
  ['to come', { state: 'ahead', notBefore: NOW + 2 * H }, 'it is accepted in 2 h'],
  ['cannot be read', { state: 'unavailable' }, 'its secret cannot be read: what does not match another key gets 503'],

  ['first, in use', { lastUsed: ago(90 * S) }, 'last needed 1 min ago'],
  ['first, in use, after an older one', { lastUsed: ago(S), olderUsed: ago(H) }, 'last needed 1 s ago'],
  ['first, before an older one', { lastUsed: ago(D), olderUsed: ago(H) }, 'last needed 1 d ago; an older key was needed since'],
  ['first, never used', {}, 'not needed in the 10 d that it is watched'],
  [
    'first, never used, but an older one was',
    { since: ago(5 * MIN), olderUsed: ago(S) },
    'not needed in the 5 min that it is watched: the sender still signs with an older key',
  ],

  [
    'old, in use a while ago',
    { isOld: true, lastUsed: ago(5 * H), newerUsed: ago(S) },
    'last needed 5 h ago: keep it until that is 3 d, as senders may retry so long',
  ],
  [
    'old, quiet for just long enough',
    { isOld: true, lastUsed: ago(3 * D), newerUsed: ago(S) },
    'last needed 3 d ago, and a newer one was: it can go',
  ],
  [
    'old, quiet, as is everything',
    { isOld: true, lastUsed: ago(9 * D), newerUsed: ago(9 * D + 1) },
    'last needed 9 d ago, but no newer key was since: keep it',
  ],
  ['old, the only one in use', { isOld: true, lastUsed: ago(S) }, 'last needed 1 s ago, but no newer key was since: keep it'],
  [
    'old, never used, watched long enough',
    { isOld: true, newerUsed: ago(H) },
    'not needed in the 10 d that it is watched, and a newer one was: it can go',
  ],
  [
    'old, never used, watched for a moment',
    { isOld: true, since: ago(H), newerUsed: ago(S) },
    'not needed in the 1 h that it is watched: keep it until that is 3 d, as senders may retry so long',
  ],
  [
    'old, never used, as is everything',
    { isOld: true },
    'not needed in the 10 d that it is watched, but no newer key was since: keep it',
  ],

  [
    'ends soon, another takes over',
    { lastUsed: ago(S), notAfter: NOW + 2 * D, hasSuccessor: true },
    'last needed 1 s ago; it ends in 2 d',
  ],
  [
    'ends soon, and none takes over',
    { lastUsed: ago(0), notAfter: NOW + 2 * D },
    'last needed 0 s ago; it ends in 2 d, and no other key is accepted then: add one',
  ],
  ['used in the future, as a clock that jumped has it', { lastUsed: NOW + H }, 'last needed 0 s ago'],
])('says of a key: %s', (_title, facts, sentence) => {
  expect(adviseOnKey({ ...FACTS, ...facts })).toBe(sentence);
});
