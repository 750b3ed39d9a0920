/** Notes of docs/presets.md on senders of payments, commerce, messages and forms. */
export const COMMERCE_NOTES = `- **Names in headers:** Lemon Squeezy (\`X-Event-Name\`) and Dwolla (\`X-Dwolla-Topic\`) repeat in unsigned headers what the signed body says. Let the app read the body: anyone who captured a delivery can change such a header, as long as
  that delivery was not handled yet.
- **Commerce Layer** names the event only in \`X-CommerceLayer-Topic\`, which is not signed. Each topic counts as its own event, as for Shopify: list them in \`kinds\`.
- **Mailchimp Transactional** signs the URL and the form's parameters without separators, so the route needs an exact \`path\`, as for Twilio. It checks a new URL with HEAD and with a form signed by the public key \`test-webhook\`, which sidegate
  rejects: create the webhook while the route has \`mode: observe\`. Webhooks of Mailchimp Marketing are not signed.
- **Xero** sends correctly and wrongly signed requests to verify the endpoint (*intent to receive*). sidegate responds to the wrong ones with 401, as Xero requires; the app gets the others, and must respond with 200 and an empty body.
- **Rotation:** for 24 hours Mollie sends \`X-Mollie-Signature\` twice, and sidegate rejects a repeated signature header (401), so let the sender end the overlap at once. Persona sends two lists in one header, of which only the last signature is compared:
  configure the new secret next to the old one before you rotate, or let Persona retry.
- **Flutterwave**: v4 signs the body; v3 sends the secret hash itself, which authenticates the sender but not the body. Its events have no ID, so a \`flutterwave-v3\` route must name one, or set \`dedup: off\`.
- **QuickBooks**: only deliveries in the CloudEvents format have IDs. Older ones are recognized by their signed bytes.
- **Calendly, Cashfree, Revolut and TikTok** send no ID that is safe to use and sign a time: a retry with a new time reaches the app again, as for Zoom.
`;
