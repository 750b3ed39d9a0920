/** How the senders of commerce.ts, customer-contact.ts, forms.ts and payments.ts interpret statuses. */
import type { SenderProfile } from './sender-profile.ts';

/** Documented behavior; senders whose documents say nothing are not listed. */
export const COMMERCE_PROFILES: Readonly<Record<string, SenderProfile>> = {
  alipay: { acknowledgement: 'success', schedule: '8 times in 25 hours, at last after 15 hours' },
  airwallex: { acknowledgedBy: [200], retries: 'failures', schedule: 'for three days, with increasing intervals' },
  bigcommerce: { schedule: 'for 48 hours, with increasing intervals; then deactivated' },
  calendly: { waitsSeconds: 15, schedule: 'for 24 hours, with increasing intervals; then disabled' },
  chargify: { acknowledgedBy: [200], waitsSeconds: 15, schedule: '4 times within 5 minutes' },
  'checkout-com': { waitsSeconds: 10, schedule: '8 times in 30 hours' },
  'coinbase-commerce': { acknowledgedBy: [200], schedule: 'for three days, at most an hour apart' },
  'commerce-layer': { waitsSeconds: 5, schedule: 'disabled after 30 consecutive failures' },
  'customer-io': { waitsSeconds: 4, schedule: 'for seven days, with increasing intervals; later events may wait' },
  dwolla: { waitsSeconds: 10, schedule: '8 times in 72 hours; paused after 400 consecutive failures' },
  fastspring: { acknowledgedBy: [200] },
  flutterwave: { acknowledgedBy: [200], waitsSeconds: 60, schedule: '3 times, 30 minutes apart, if retries are enabled' },
  'flutterwave-v3': { acknowledgedBy: [200], waitsSeconds: 60, schedule: '3 times, 30 minutes apart, if retries are enabled' },
  front: { schedule: '3 times; disabled after repeated failures' },
  'front-rules': { retries: 'nothing', waitsSeconds: 5, schedule: 'never' },
  gocardless: { waitsSeconds: 10, schedule: '8 times, after 1, 2 and 10 minutes and so on' },
  intercom: {
    disabledBy: [410],
    waitsSeconds: 5,
    schedule: 'once, after a minute; paused for 15 minutes after 1,000 failures in a row, suspended after seven days of failures',
  },
  'lemon-squeezy': { acknowledgedBy: [200], retries: 'failures', schedule: 'after 5, 25 and 125 seconds' },
  mollie: { waitsSeconds: 15 },
  paystack: { acknowledgedBy: [200], schedule: '4 times, 3 minutes apart, then hourly for 72 hours' },
  persona: { acknowledgedBy: [200, 201, 202, 204], waitsSeconds: 5 },
  quickbooks: {
    acknowledgedBy: [200],
    retries: 'failures',
    waitsSeconds: 3,
    schedule: 'after 10, 20 and 30 seconds, 5 and 20 minutes, 2 and 4 hours, then every 6 hours; later events wait',
  },
  razorpay: { waitsSeconds: 5, schedule: 'for 24 hours, with increasing intervals; then disabled' },
  recurly: { waitsSeconds: 5, schedule: '10 times in three days, with increasing intervals' },
  revolut: { schedule: '3 times, 10 minutes apart' },
  tiktok: { acknowledgedBy: [200], schedule: 'for 72 hours, with increasing intervals' },
  typeform: {
    disabledBy: [404, 410],
    waitsSeconds: 30,
    schedule: 'after 408, 423, 429 and 503 every few minutes for 10 hours; otherwise about 5 times',
  },
  xero: { acknowledgedBy: [200], waitsSeconds: 5, schedule: 'for 24 hours, with decreasing frequency; then disabled' },
  zendesk: {
    retries: 'server-errors',
    givesUpOn: [500, 502, 504],
    schedule: '3 times after 409, and after 429 or 503 with Retry-After below a minute',
  },
};
