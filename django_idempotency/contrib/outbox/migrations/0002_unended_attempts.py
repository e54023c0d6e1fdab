from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("idempotency_outbox", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="message",
            name="unended",
            field=models.PositiveIntegerField(
                db_default=0, default=0, verbose_name="attempts without an end"
            ),
        )
    ]
