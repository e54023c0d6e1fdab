"""For your tests, and for the tests of your own store.

`contract.StoreContract` is what every store must keep; `tickets.make_ticket` makes something to claim;
`recording.RecordingStore` tells which verbs were called; `clock.elapse` lets time pass for the ORM store without sleep.
Import them from their modules: some load the model, and this package must not.
"""
