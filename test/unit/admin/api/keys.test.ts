import { expect, test } from 'vitest';
import { adviseOnKey, type KeyFacts } from '../../../../src/admin/api/keys.ts';

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
  ['expired', { state: 'expired', notAfter: ago(3 * D) }, 'expired 3 d ago: remove it'],
  ['not yet valid', { state: 'not-yet-valid', notBefore: NOW + 2 * H }, 'becomes valid in 2 h'],
  ['cannot be read', { state: 'unavailable' }, 'its secret cannot be read: deliveries that match no other key get 503'],

  ['first, in use', { lastUsed: ago(90 * S) }, 'last used 1 min ago'],
  ['first, in use, after an older one', { lastUsed: ago(S), olderUsed: ago(H) }, 'last used 1 s ago'],
  ['first, before an older one', { lastUsed: ago(D), olderUsed: ago(H) }, 'last used 1 d ago; an older key has been used since'],
  ['first, never used', {}, 'not used in the 10 d since it was loaded'],
  [
    'first, never used, but an older one was',
    { since: ago(5 * MIN), olderUsed: ago(S) },
    'not used in the 5 min since it was loaded: the sender still signs with an older key',
  ],

  [
    'old, in use a while ago',
    { isOld: true, lastUsed: ago(5 * H), newerUsed: ago(S) },
    'last used 5 h ago: keep it until it is unused for 3 d, because senders may retry for that long',
  ],
  [
    'old, unused for just long enough',
    { isOld: true, lastUsed: ago(3 * D), newerUsed: ago(S) },
    'last used 3 d ago, and a newer key has been used: remove it',
  ],
  [
    'old, unused like all others',
    { isOld: true, lastUsed: ago(9 * D), newerUsed: ago(9 * D + 1) },
    'last used 9 d ago, but no newer key has been used since: keep it',
  ],
  [
    'old, the only one in use',
    { isOld: true, lastUsed: ago(S) },
    'last used 1 s ago, but no newer key has been used since: keep it',
  ],
  [
    'old, never used, observed long enough',
    { isOld: true, newerUsed: ago(H) },
    'not used in the 10 d since it was loaded, and a newer key has been used: remove it',
  ],
  [
    'old, never used, observed for a moment',
    { isOld: true, since: ago(H), newerUsed: ago(S) },
    'not used in the 1 h since it was loaded: keep it until it is unused for 3 d, because senders may retry for that long',
  ],
  [
    'old, never used, like all others',
    { isOld: true },
    'not used in the 10 d since it was loaded, but no newer key has been used since: keep it',
  ],

  [
    'expires soon, with a successor',
    { lastUsed: ago(S), notAfter: NOW + 2 * D, hasSuccessor: true },
    'last used 1 s ago; expires in 2 d',
  ],
  [
    'expires soon, without a successor',
    { lastUsed: ago(0), notAfter: NOW + 2 * D },
    'last used 0 s ago; expires in 2 d, and no other key is valid then: add one',
  ],
  ['used in the future, after a clock jump', { lastUsed: NOW + H }, 'last used 0 s ago'],
])('advises on a key: %s', (_title, facts, sentence) => {
  expect(adviseOnKey({ ...FACTS, ...facts })).toBe(sentence);
});
